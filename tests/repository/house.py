"""The rules of the house: who may import what. CONTRIBUTING says why."""

from __future__ import annotations

from pathlib import Path

from import_scan import Import, imports_of, python_files

#: From left to right: a room imports rooms to its left alone, and the ground floor.
ROOMS = (
    "devices",
    "machine",
    "parallel",
    "evidence",
    "judgement",
    "speed",
    "strategies",
    "faults",
    "checks",
    "runner",
    "report",
)
#: Imports nothing of the harness but the ground floor itself.
GROUND_FLOOR = ("errors", "records", "_tensorflow")
#: May import every room; nothing imports them.
FRONTS = (
    "cli",
    "cli_compare",
    "cli_calibrate",
    "cli_endings",
    "cli_errors",
    "cli_options",
    "cli_profile",
    "cli_report",
    "cli_profile_machine",
    "cli_run",
    "cli_scale",
    "cli_serve",
    "cli_suite",
    "cli_validate",
    "plugin",
    "plugin_gate",
    "plugin_speed",
)

#: Public modules beside the rooms: they may import every room, and the package alone imports them.
PUBLIC = ("distribute",)

#: The parts of TensorFlow that are not private. Everything else below ``tensorflow`` is.
_PUBLIC_TENSORFLOW = ("tensorflow.keras",)
_DOOR = "_tensorflow"
#: Package and the one place that may import it.
_ONE_PLACE = {"pytest": "plugin", "_pytest": "plugin", "hypothesis": "strategies", "typer": "cli"}


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
        ]
    return found


def _place(path: Path) -> str:
    """The room, or the name of the module outside of all rooms."""
    return path.parts[0] if len(path.parts) > 1 else path.stem


def _forbidden(place: str, imported: Import) -> str | None:
    if imported.module.startswith("."):
        return "a relative import; write the full name"
    for package, only in _ONE_PLACE.items():
        if imported.is_in(package) and _front(place) != only:
            return f"only harness/{only} imports {package}"
    if imported.is_in("tensorflow") or imported.is_in("keras"):
        return _forbidden_tensorflow(place, imported)
    if imported.is_in("harness"):
        return _forbidden_room(place, imported)
    return None


def _front(place: str) -> str:
    """The front that a module is a part of: ``plugin_speed`` is a part of ``plugin``. A room is itself."""
    return place.partition("_")[0] if place in FRONTS else place


def _forbidden_tensorflow(place: str, imported: Import) -> str | None:
    if imported.at_import:
        return "TensorFlow takes seconds to load; import it in the function that needs it"
    is_public = imported.module == "tensorflow" or any(imported.is_in(part) for part in _PUBLIC_TENSORFLOW)
    if imported.is_in("tensorflow") and not is_public and place != _DOOR:
        return f"only harness/{_DOOR}.py touches TensorFlow's private interface"
    return None


def _forbidden_room(place: str, imported: Import) -> str | None:
    parts = imported.module.split(".")
    target = parts[1] if len(parts) > 1 else ""
    if place in (*FRONTS, *PUBLIC, "__init__") or target == place:
        return "nothing imports the fronts" if target in FRONTS and _front(target) != _front(place) else None
    if target in GROUND_FLOOR:
        return None
    if target not in ROOMS:
        return "neither a room to the left nor the ground floor"
    if place not in ROOMS:
        return "the ground floor imports no room"
    return None if ROOMS.index(target) < ROOMS.index(place) else f"{target} is not to the left of {place}"
