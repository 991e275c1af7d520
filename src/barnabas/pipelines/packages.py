"""Checks for packages that only some formats need, before Spark starts, because its start takes long."""

from __future__ import annotations

from importlib.util import find_spec

from barnabas.base.installation import pip_install
from barnabas.spark.option_values import invalid_option

#: The packages that a format imports, and the extra that installs them.
_NEEDED = {
    "avro": (("fastavro",), "registry"),
    "jsonschema": (("jsonschema", "referencing"), "registry"),
    "protobuf": (("google.protobuf",), "spark"),
}


def check_packages(format: str) -> None:
    """Raise ConfigError if a package that `format` needs is not installed for this Python (the driver's)."""
    packages, extra = _NEEDED.get(format, ((), ""))
    for package in packages:
        if not _is_there(package):
            raise invalid_option("format", format, f"{package} is missing: {pip_install(extra)}")


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # what it lies in is missing
        return False
