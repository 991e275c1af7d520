"""Packages that only some formats and sinks need: asked for before Spark starts, which takes long."""

from __future__ import annotations

from importlib.util import find_spec

from barnabas.base.installation import pip_install
from barnabas.spark.option_values import refuse

#: by format or kind of sink: what it imports, and the extra that installs it
_NEEDED = {
    "avro": (("fastavro",), "registry"),
    "jsonschema": (("jsonschema", "referencing"), "registry"),
    "protobuf": (("google.protobuf",), "spark"),
    "delta": (("deltalake",), "delta"),
    "iceberg": (("pyiceberg",), "iceberg"),
    "postgres": (("psycopg",), "postgres"),
}


def check_packages(format: str, kind: str) -> None:
    """Raise ConfigError when the driver lacks a package for this format or this kind of source or sink."""
    for option, value in (("format", format), (kind, kind)):
        packages, extra = _NEEDED.get(value, ((), ""))
        for package in packages:
            if not _is_there(package):
                raise refuse(option, value, f"{package} is missing: {pip_install(extra)}")


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # what it lies in is missing
        return False
