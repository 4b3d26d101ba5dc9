"""Profiles: named set-ups in TOML files, shipped ones (``@NAME``) and the user's.

Reading one loads Pydantic; finding and listing them loads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.devices.kinds.gpu import GpuSpec
from harness.devices.kinds.kind import DeviceSpec
from harness.devices.kinds.logical_gpu import LogicalGpuSpec
from harness.devices.plan import Options
from harness.devices.shipped import shipped_folder
from harness.devices.spec import ShippedProfile, accepted_specs, parse_spec
from harness.errors import InvalidProfile, InvalidSpec


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile, read and validated."""

    name: str
    path: Path
    description: str
    spec: DeviceSpec
    options: Options


def shipped_profile_names() -> tuple[str, ...]:
    """List the names that ``@NAME`` accepts, sorted."""
    return tuple(sorted(path.stem for path in shipped_folder("devices").glob("*.toml")))


def shipped_profiles() -> tuple[Profile, ...]:
    """Read and validate all shipped profiles, sorted by name."""
    return tuple(load_profile(find_profile(ShippedProfile(name))) for name in shipped_profile_names())


def find_profile(shipped: ShippedProfile) -> Path:
    """Find the file of a shipped profile. Raise InvalidSpec if there is none of that name."""
    names = shipped_profile_names()
    if shipped.name not in names:
        raise InvalidSpec(str(shipped), "no such profile", ", ".join(f"@{name}" for name in names))
    return shipped_folder("devices") / f"{shipped.name}.toml"


def load_profile(path: Path) -> Profile:
    """Read and validate a profile file. Raise InvalidSpec if it cannot be read, InvalidProfile if it is not valid."""
    from harness.devices.profile_schema import ProfileDocument
    from harness.devices.toml_file import parse_model

    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidSpec(str(path), f"the profile cannot be read ({reason})") from error
    document = parse_model(path, text, ProfileDocument)
    spec = _device_spec(path, document.spec)
    _check_memory(path, spec, document.memory.growth, document.memory.limit_mib)
    options = Options(
        memory_growth=document.memory.growth,
        memory_limit_mib=document.memory.limit_mib,
        intra_op_threads=document.threads.intra_op,
        inter_op_threads=document.threads.inter_op,
        determinism=document.determinism,
        tf32=document.tf32,
        soft_placement=document.soft_placement,
    )
    return Profile(path.stem, path, document.description, spec, options)


def _device_spec(path: Path, text: str) -> DeviceSpec:
    accepted = accepted_specs(in_profile=True)
    try:
        spec = parse_spec(text)
    except InvalidSpec as error:
        raise InvalidProfile(path, "spec", text, f"{accepted} ({error.why})") from error
    if not isinstance(spec, DeviceSpec):
        raise InvalidProfile(path, "spec", text, f"{accepted} (a profile cannot name another profile)")
    if not spec.IN_PROFILE:
        raise InvalidProfile(path, "spec", text, accepted)
    return spec.within(path.parent)


def _check_memory(path: Path, spec: DeviceSpec, growth: bool | None, limit_mib: int | None) -> None:
    """Refuse memory settings without real GPUs, and growth together with a limit, as TensorFlow does."""
    if growth and limit_mib is not None:
        raise InvalidProfile(path, "memory.limit_mib", limit_mib, "growth = true or limit_mib, not both")
    key, found = ("memory.growth", growth) if growth is not None else ("memory.limit_mib", limit_mib)
    if found is not None and not isinstance(spec, GpuSpec):
        why = "gpu:NxM sets the limit itself" if isinstance(spec, LogicalGpuSpec) else f"{key} is for real GPUs only"
        raise InvalidProfile(path, key, found, f"only with spec = 'gpu' or 'gpu:N' ({why}), not with '{spec}'")
