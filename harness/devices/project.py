"""The settings of a project: the table ``[tool.harness]`` of its ``pyproject.toml``.

    [tool.harness]
    devices = "cpu:4"                       # --devices of every command, and of pytest
    level = "standard"                      # --level
    report = "build/harness"                # --report
    threshold = "10%"                       # --threshold of compare and calibrate
    baselines = "benchmarks/baselines"      # --baselines
    benchmark_command = "pytest benchmarks" # --command of compare and calibrate
    known_failures = "known_failures.toml"  # --known-failures
    profiles = "machines"                   # --profiles: hardware profiles of your own
    save_failures = "build/failures"        # --harness-save of pytest

    [[tool.harness.accept]]                 # accept= of every verification under pytest
    finding = "H202"
    reason = "the small tower is left where it is"

What the command line says wins. Paths are relative to the folder of the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import InvalidSettings, InvalidSpec

_FILE = "pyproject.toml"
#: Without it in the text, there is nothing to parse.
_HEAD = "tool.harness"
_PATHS = ("report", "baselines", "known_failures", "profiles")
#: Where nothing is to be saved, instead of a path.
_OFF = "off"


@dataclass(frozen=True)
class Project:
    """The settings that a project gives, by their names, and what it accepts: pairs of a finding and the reason."""

    file: Path
    settings: dict[str, str]
    accept: tuple[tuple[str, str], ...] = ()


def project_of(folder: Path) -> Project | None:
    """The settings of the nearest ``pyproject.toml`` in this folder or above it; ``None`` if it has none.

    Raises InvalidSettings if the file cannot be read, or with the first wrong key or value.
    """
    file = next((each / _FILE for each in (folder, *folder.parents) if (each / _FILE).is_file()), None)
    if file is None:
        return None
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidSettings(file, "", reason, "a readable TOML file") from error
    return _parsed(file, text) if _HEAD in text else None


def _parsed(file: Path, text: str) -> Project:
    from harness.devices.project_schema import Document
    from harness.devices.toml_file import parse_model

    table = parse_model(file, text, Document, InvalidSettings).tool.harness
    settings = {name: str(value) for name, value in table if isinstance(value, str)}
    for number, each in enumerate(table.accept):
        _check_code(file, f"tool.harness.accept[{number}].finding", each.finding)
    for name in _PATHS:
        if name in settings:
            settings[name] = str(file.parent / settings[name])
    if settings.get("save_failures", _OFF) != _OFF:
        settings["save_failures"] = str(file.parent / settings["save_failures"])
    devices = settings.get("devices", "")
    if devices.endswith(".toml") and not devices.startswith("@"):
        settings["devices"] = str(file.parent / devices)
    if devices:
        _check_devices(file, devices, settings["devices"])
    return Project(file, settings, tuple((each.finding, each.reason) for each in table.accept))


def _check_devices(file: Path, given: str, spec: str) -> None:
    """Refuse a spec that nobody could configure. Whether a profile's file can be read is found when it is used."""
    from harness.devices.profile import find_profile
    from harness.devices.spec import ShippedProfile, parse_spec

    try:
        parsed = parse_spec(spec)
        if isinstance(parsed, ShippedProfile):
            find_profile(parsed)
    except InvalidSpec as error:
        accepted = error.accepted or f"a device spec; {error.why}"
        raise InvalidSettings(file, "tool.harness.devices", given, accepted) from error


def _check_code(file: Path, key: str, finding: str) -> None:
    """Refuse a code that no kind of finding has. Other texts may be places."""
    from harness.finding_kinds import KINDS, find_kind

    if finding.upper()[:1] == "H" and finding[1:].isdigit() and find_kind(finding) is None:
        raise InvalidSettings(file, key, finding, ", ".join(kind.code for kind in KINDS.values()))
