"""The rules of the house: who may import what. CONTRIBUTING says why."""

from __future__ import annotations

from collections.abc import Container
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from import_scan import Import, imports_of, python_files

#: From top to bottom: a room imports rooms above it alone, and the ground floor.
ROOMS = (
    "softgpu",
    "devices",
    "runner",
    "parallel",
    "evidence",
    "proof",
    "judgement",
    "checking",
    "distribute",
    "hardware",
    "speed",
    "advice",
    "script",
    "strategies",
    "faults",
    "checks",
    "report",
    "fleet",
)
#: Rooms that stand side by side: neither imports the other.
STRANGERS = ("distribute", "hardware")
#: Imports nothing of the harness but the ground floor itself.
GROUND_FLOOR = (
    "errors",
    "extras",
    "records",
    "atomic_file",
    "finding_kinds",
    "stored",
    "plural",
    "temporary",
    "lazy",
    "notebook",
    "session",
    "tensorflow_version",
    "_tensorflow",
)
#: Thin fronts: each may import every room; nothing imports them, not even each other.
FRONTS = ("cli", "pytest_plugin")
#: Modules outside of all rooms that start a front, or say what its users get.
STARTS = {"__main__": "cli", "fixtures": "pytest_plugin"}

#: The parts of TensorFlow that are not private. Everything else below ``tensorflow`` is.
_PUBLIC_TENSORFLOW = ("tensorflow.keras",)
_DOOR = "_tensorflow"
#: Package and the one place that may import it.
_ONE_PLACE = {
    "pytest": "pytest_plugin",
    "_pytest": "pytest_plugin",
    "hypothesis": "strategies",
    "typer": "cli",
    "pynvml": "devices",
}
#: Files that write programs for users, which import the package as users do.
_WRITES_SCRIPTS = ("strategies/script.py", "advice/script.py")


def violations(root: Path) -> list[str]:
    """Every import under ``root/harness`` that the rules forbid, one line each."""
    package = root / "harness"
    found: list[str] = []
    for path in python_files(package):
        place = _place(path.relative_to(package))
        found += [
            f"{path.relative_to(root)}:{imported.line}: {imported.module}: {why}"
            for imported in imports_of(path)
            if (why := _forbidden(place, imported))
            and not (imported.module == "harness" and str(path.relative_to(package)) in _WRITES_SCRIPTS)
        ]
    return found


def circle(root: Path) -> list[str]:
    """The modules under ``root/harness`` of one circle of imports, each importing the next; none without a circle."""
    modules = {_module(path.relative_to(root)): path for path in python_files(root / "harness")}
    # The face hands names on, of all rooms. What scripts for users import is not imported here.
    modules.pop("harness", None)
    imports = {
        module: {
            target for imported in imports_of(path) if (target := _imported(imported, modules)) not in ("", module)
        }
        for module, path in modules.items()
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return [*reversed(error.args[1])]
    return []


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(imported: Import, modules: Container[str]) -> str | None:
    """The module of ours that is imported: ``from package import name`` may name one, or something in one."""
    return next((name for name in (imported.module, imported.module.rpartition(".")[0]) if name in modules), None)


def _place(path: Path) -> str:
    """The room, or the name of the module outside of all rooms."""
    return path.parts[0] if len(path.parts) > 1 else path.stem


def _forbidden(place: str, imported: Import) -> str | None:
    if imported.module.startswith("."):
        return "a relative import; write the full name"
    for package, only in _ONE_PLACE.items():
        if imported.is_in(package) and place != only:
            return f"only harness/{only} imports {package}"
    if imported.is_in("tensorflow") or imported.is_in("keras"):
        return _forbidden_tensorflow(place, imported)
    if imported.is_in("harness"):
        return _forbidden_room(place, imported)
    return None


def _forbidden_tensorflow(place: str, imported: Import) -> str | None:
    if imported.at_import:
        return "TensorFlow takes seconds to load; from harness.lazy import tf loads it when it is used"
    is_public = imported.module == "tensorflow" or any(imported.is_in(part) for part in _PUBLIC_TENSORFLOW)
    if imported.is_in("tensorflow") and not is_public and place != _DOOR:
        return f"only harness/{_DOOR}.py touches TensorFlow's private interface"
    return None


def _forbidden_room(place: str, imported: Import) -> str | None:
    parts = imported.module.split(".")
    target = parts[1] if len(parts) > 1 else ""
    if target == place or target in GROUND_FLOOR:
        return None
    if place in (*FRONTS, *STARTS, "__init__"):
        return "nothing imports the fronts" if target in FRONTS and STARTS.get(place) != target else None
    if target not in ROOMS:
        return "neither a room above nor the ground floor"
    if place not in ROOMS:
        return "the ground floor imports no room"
    if place in STRANGERS and target in STRANGERS:
        return f"{place} and {target} stand side by side"
    return None if ROOMS.index(target) < ROOMS.index(place) else f"{target} is not above {place}"
