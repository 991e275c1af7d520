"""Runs protoc, from grpcio-tools, in a separate process.

Each call of `compile_files` blocks for some 50 ms, mostly for the start of a Python interpreter. In the
registry's own process, protoc would write to stderr and hold the GIL, and a crash of protoc would end the
registry.
"""

from __future__ import annotations

import errno
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from barnabas.registry.errors import Code, InvalidSchemaError, RegistryError

#: the file name of the schema itself, which none of its imports has
MAIN = "<schema>"

_TIMEOUT_S = 10.0
#: errors that are reported: one mistake makes protoc report many more
_MAX_COMPLAINTS = 5

#: the errors of file names that one folder cannot contain
_UNFIT = {errno.ENAMETOOLONG, errno.EEXIST, errno.EISDIR, errno.ENOTDIR}

#: what is no complaint: warnings, and the log of the library that writes them
_REMARK = re.compile(r": warning: |^WARNING: All log messages|^[IW]\d{4} ")

#: argv[1:] is the command line; not ``-m``, which would let an include path of grpcio-tools' own come first
_RUN = "import sys; from grpc_tools.protoc import main; sys.exit(3 if main(['protoc', *sys.argv[1:]]) else 0)"
#: protoc's refusal; an interpreter that cannot so much as begin ends with 1
_REFUSED = 3


def compile_files(text: str, references: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Compile a .proto file, and return a FileDescriptorProto by file name. This blocks.

    The result has each file that `text` imports, directly or indirectly, and last the file `MAIN`: `text`
    itself. A file comes after the files that it imports.

    Args:
        text: the text of the .proto file.
        references: the name and the text of each file that `text` may import. Files of ``google/protobuf/``,
            ``google/type/`` and ``confluent/`` are always available.

    Raises:
        InvalidSchemaError: protoc rejects `text`, for the reasons in the message; or a reference has a name
            that no file can have.
        RegistryError: OPERATION_TIMEOUT, protoc takes too long; STORE_ERROR, protoc crashes or cannot start.
    """
    with tempfile.TemporaryDirectory(prefix="barnabas-protoc-") as made:
        folder = Path(made)
        sources = folder / "sources"
        for name, source in (*references, (MAIN, text)):
            _write(sources, name, source)
        output = folder / "descriptors"
        # Known files come first, so that no schema gets others by these names. With -P the interpreter
        # imports nothing from the folder it runs in.
        command = [sys.executable, "-P", "-c", _RUN, *_known_files(), f"-I{sources}"]
        try:
            done = subprocess.run(
                [*command, "--include_imports", "--retain_options", f"--descriptor_set_out={output}", MAIN],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            words = f"protoc is not done with the schema in {_TIMEOUT_S:g} s: ask again"
            raise RegistryError(Code.OPERATION_TIMEOUT, words) from None
        if done.returncode < 0:
            raise RegistryError(Code.STORE_ERROR, f"protoc died of signal {-done.returncode}")
        if done.returncode == _REFUSED:
            raise InvalidSchemaError(_warnings(done, sources))
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise RegistryError(Code.STORE_ERROR, f"protoc cannot run: {words}")
        return {file.name: file for file in FileDescriptorSet.FromString(output.read_bytes()).file}


def _write(sources: Path, name: str, text: str) -> None:
    # protoc finds no other names, and a name must not lead out of the folder.
    if any(part in ("", ".", "..") for part in name.split("/")) or not name.isprintable() or "\\" in name:
        raise InvalidSchemaError(f"{name!r} is not the name of a file to import, such as shop/order.proto")
    path = sources / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except UnicodeEncodeError as error:
        raise InvalidSchemaError(f"{name} cannot be written out for protoc: {error.reason}") from None
    except OSError as error:
        if error.errno not in _UNFIT:
            raise  # not an error of the schema: clients will try again
        raise InvalidSchemaError(f"{name} cannot be written out for protoc: {error.strerror}") from None


def _known_files() -> list[str]:
    def folder(package: str) -> Path:
        spec = find_spec(package)
        assert spec is not None and spec.submodule_search_locations is not None, package
        return Path(next(iter(spec.submodule_search_locations)))

    return [
        f"-Igoogle/protobuf={folder('grpc_tools') / '_proto' / 'google' / 'protobuf'}",
        f"-Igoogle/type={folder('google.type')}",
        f"-Iconfluent={Path(__file__).parent / 'known' / 'confluent'}",
    ]


def _warnings(done: subprocess.CompletedProcess[bytes], sources: Path) -> str:
    """Return the first errors of `done`, a finished protoc process, in one line.

    `sources` is the folder of the files that protoc read. The errors name files without this folder.
    A position is LINE:COLUMN in the schema itself, and FILE:LINE:COLUMN in an import.
    """
    said = done.stderr.decode(errors="replace").replace(f"{sources}/", "").replace(f"{MAIN}:", "")
    lines = [line for line in said.splitlines() if line.strip() and not _REMARK.search(line)]
    return "; ".join(lines[:_MAX_COMPLAINTS])
