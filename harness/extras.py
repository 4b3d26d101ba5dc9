"""Optional packages: which extra of the wheel installs each, and one clear error where one is missing."""

from __future__ import annotations

from importlib.util import find_spec

from harness.errors import MissingExtra

#: Package to the extra that installs it.
EXTRAS = {
    "fsspec": "fleet",
    "hypothesis": "generate",
    "jinja2": "report",
    "matplotlib": "report",
    "prometheus_client": "fleet",
    "pytest": "pytest",
    "pytest_benchmark": "speed",
    "ray": "ray",
    "scipy": "speed",
}


def require(*packages: str) -> None:
    """Check that optional packages are installed, before anything that needs them starts. Raise MissingExtra if not."""
    for package in packages:
        try:
            found = find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise MissingExtra(package, EXTRAS[package])


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """Return the error that names the extra, where ``error`` is about an optional package."""
    package = (error.name or "").partition(".")[0]
    return MissingExtra(package, EXTRAS[package]) if package in EXTRAS else None
