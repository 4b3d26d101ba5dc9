"""Parses device specs: text in, a frozen value out. Nothing is loaded and nothing is configured here."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from harness.devices.kinds.kind import DeviceSpec, Form
from harness.devices.kinds.table import KINDS
from harness.errors import InvalidSpec

#: A device as TensorFlow names it, such as ``/GPU:0``, ``/device:GPU:0`` or with its job in front.
_DEVICE_NAME = re.compile(r"/.*?(?P<kind>CPU|GPU|cpu|gpu):(?P<number>[0-9]{1,3})")
#: Other words for a kind of device, at the beginning of a spec.
_KINDS_BY_ALIAS = {"cpus": "cpu", "gpus": "gpu", "cuda": "gpu", "nvidia": "gpu", "softgpus": "softgpu", "core": "cores"}
_ALIASES = re.compile(rf"^({'|'.join(_KINDS_BY_ALIAS)})(?=:|$)")
_PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class ShippedProfile:
    """``@NAME``: a profile that comes with the harness."""

    name: str

    def __str__(self) -> str:
        return f"@{self.name}"


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A path to a profile of the user's."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


#: Any spec: devices, or a profile that names them.
Spec = DeviceSpec | ShippedProfile | ProfileFile

#: The forms that name a profile.
_PROFILE_FORMS = (
    Form("@NAME", "a profile that comes with the harness"),
    Form("path/to/mine.toml", "a profile of your own"),
)

#: What other programs call the first device, such as ``cuda:0``.
_FIRST_DEVICE = re.compile(r"(?P<kind>cpu|gpu):(?P<number>0)")
#: Several of them, such as ``gpu:0,1`` and ``gpu:0,gpu:1``.
_DEVICES = re.compile(r"(?:/?(?P<kind>cpu|gpu):)?[0-9]+(?:, ?(?:/?(?:cpu|gpu):)?[0-9]+)+")


def spec_forms(*, in_profile: bool = False) -> tuple[Form, ...]:
    """List every form of a spec; with ``in_profile``, those that a profile may name."""
    forms = tuple(form for kind in KINDS if kind.IN_PROFILE or not in_profile for form in kind.FORMS)
    return forms if in_profile else forms + _PROFILE_FORMS


def accepted_specs(*, in_profile: bool = False) -> str:
    """List the forms in one line, for messages and help texts."""
    *others, last = (form.written for form in spec_forms(in_profile=in_profile))
    return f"{', '.join(others)} or {last}"


def parse_spec(spec: str | os.PathLike[str]) -> Spec:
    """Parse a device spec, without a look at the machine or the file system.

    Raise InvalidSpec if the text does not follow the grammar, or names no device at all.
    """
    try:
        text = os.fspath(spec)
        is_file = text.endswith(".toml") and not text.startswith("softgpu:")
    except TypeError as error:
        raise _refused(repr(spec), f"it is of type {type(spec).__name__}, not a string or a path") from error
    if is_file or isinstance(spec, os.PathLike):
        return _profile_file(text)
    if text.startswith("@"):
        if not _PROFILE_NAME.fullmatch(text[1:]):
            raise _refused(text, "a profile name has only letters, digits, '-' and '_'; a path ends in .toml")
        return ShippedProfile(text[1:])
    for kind in KINDS:
        try:
            parsed = kind.parse(text)
        except ValueError as error:
            raise _refused(text, str(error)) from error
        if parsed is not None:
            return parsed
    raise _refused(text, _hint(text))


def _profile_file(text: str) -> ProfileFile:
    if not text.endswith(".toml"):
        raise _refused(text, "a profile file ends in .toml")
    if text.startswith("@"):
        raise _refused(text, f"a shipped profile is named without .toml ({text.removesuffix('.toml')!r})")
    return ProfileFile(Path(text))


def _hint(text: str) -> str:
    if not text:
        return "it is empty"
    plain = text.strip().lower()
    meant = _ALIASES.sub(lambda name: _KINDS_BY_ALIAS[name[1]], plain)
    if name := _DEVICES.fullmatch(meant):
        kind, count = name["kind"] or "gpu", meant.count(",") + 1
        others = "; CUDA_VISIBLE_DEVICES chooses others" if kind == "gpu" else ""
        first = f"{kind}:{count} takes the first {count} {kind.upper()}s"
        return f"this names devices, and a spec says how many; {first}{others}"
    if name := _DEVICE_NAME.fullmatch(text) or _FIRST_DEVICE.fullmatch(meant):
        kind, number = name["kind"].lower(), int(name["number"])
        others = "" if number == 0 else f", {kind}:{number + 1} the first {number + 1}"
        return f"this names one device, and a spec says how many; {kind}:1 takes the first {kind.upper()}{others}"
    suggestion = f"; did you mean {meant!r}?" if _is_spec(meant) else ""
    if text != plain:
        return f"specs are in lower case and without spaces{suggestion}"
    hints = (hint for kind in KINDS for pattern, hint in kind.HINTS if re.fullmatch(pattern, text))
    return next(hints, f"unknown{suggestion}")


def _is_spec(text: str) -> bool:
    try:
        return any(kind.parse(text) is not None for kind in KINDS)
    except ValueError:
        return False


def _refused(spec: str, why: str) -> InvalidSpec:
    return InvalidSpec(spec, why, accepted_specs())
