"""The grammar of device specs: text in, a frozen value out. Nothing is loaded and nothing is configured here."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from harness.devices.address import Address, distinct
from harness.errors import InvalidSpec

#: More logical devices than this in one process is a slip of the keyboard: TensorFlow makes a thread pool entry,
#: an allocator and a set of kernels for each.
MAX_COUNT = 1024

_NUMBER = r"[0-9]+"
_CPU = re.compile(rf"cpu:({_NUMBER})")
_GPU = re.compile(rf"gpu:({_NUMBER})")
_CORES = re.compile(rf"cores:({_NUMBER})")
_LOGICAL_GPU = re.compile(rf"gpu:({_NUMBER})x({_NUMBER})")
_PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

#: Who can say which hosts there are: TensorFlow's cluster resolvers, by what they read.
ResolverName = Literal["tf_config", "slurm", "kubernetes"]
_RESOLVERS: tuple[ResolverName, ...] = get_args(ResolverName)
_CLUSTER = "cluster:"
_WHICH_HOSTS = "say which hosts, such as 'cluster:10.0.0.1:8470,10.0.0.2:8470'"


@dataclass(frozen=True, slots=True)
class AutoSpec:
    """``auto``: two or more real GPUs, else two logical GPUs on the one card, else four logical CPUs."""

    def __str__(self) -> str:
        return "auto"


@dataclass(frozen=True, slots=True)
class CpuSpec:
    """``cpu:N``: N logical CPUs."""

    count: int

    def __str__(self) -> str:
        return f"cpu:{self.count}"


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """``gpu``: all real GPUs (``count`` is ``None``); ``gpu:N``: the first N."""

    count: int | None = None

    def __str__(self) -> str:
        return "gpu" if self.count is None else f"gpu:{self.count}"


@dataclass(frozen=True, slots=True)
class LogicalGpuSpec:
    """``gpu:NxM``: N logical GPUs of M MiB each on the first card."""

    count: int
    memory_mib: int

    def __str__(self) -> str:
        return f"gpu:{self.count}x{self.memory_mib}"


@dataclass(frozen=True, slots=True)
class CoresSpec:
    """``cores:N``: N TensorFlow servers on this machine, each on a CPU core of its own, with one thread."""

    count: int

    def __str__(self) -> str:
        return f"cores:{self.count}"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """``cluster:HOST:PORT,…``: the devices of TensorFlow servers on these hosts.

    ``cluster:tf_config``, ``cluster:slurm``, ``cluster:kubernetes``: of those that ``resolver`` names.
    """

    hosts: tuple[Address, ...] = ()
    resolver: ResolverName | None = None

    def __str__(self) -> str:
        return _CLUSTER + (self.resolver or ",".join(map(str, self.hosts)))


@dataclass(frozen=True, slots=True)
class ShippedProfile:
    """``@NAME``: a profile that comes with the harness."""

    name: str

    def __str__(self) -> str:
        return f"@{self.name}"


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A path to a profile of one's own."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


#: A spec that names devices itself.
DeviceSpec = AutoSpec | CpuSpec | GpuSpec | LogicalGpuSpec | CoresSpec | ClusterSpec
#: Any spec: devices, or a profile that names them.
Spec = DeviceSpec | ShippedProfile | ProfileFile


def parse_spec(spec: str | os.PathLike[str]) -> Spec:
    """Parse a device spec.

    ``auto``, ``cpu:N``, ``gpu``, ``gpu:N``, ``gpu:NxM``, ``cores:N``, ``cluster:HOST:PORT,…``, ``cluster:RESOLVER``,
    ``@NAME`` or a path to a ``.toml``.

    Neither the machine nor the file system is looked at.

    Raises:
        InvalidSpec: the text does not follow the grammar, or asks for no device at all.
    """
    try:
        text = os.fspath(spec)
        is_file = text.endswith(".toml")
    except TypeError as error:
        raise InvalidSpec(repr(spec), f"it is of type {type(spec).__name__}, not a text or a path") from error
    if is_file or isinstance(spec, os.PathLike):
        return _profile_file(text)
    if text == "auto":
        return AutoSpec()
    if text == "gpu":
        return GpuSpec()
    if match := _CPU.fullmatch(text):
        return CpuSpec(_count(text, match[1]))
    if match := _GPU.fullmatch(text):
        return GpuSpec(_count(text, match[1]))
    if match := _CORES.fullmatch(text):
        return CoresSpec(_count(text, match[1]))
    if text.startswith(_CLUSTER):
        return _cluster(text)
    if match := _LOGICAL_GPU.fullmatch(text):
        memory_mib = int(match[2])
        if memory_mib < 1:
            raise InvalidSpec(text, "a logical GPU needs 1 MiB or more")
        return LogicalGpuSpec(_count(text, match[1]), memory_mib)
    if text.startswith("@"):
        if not _PROFILE_NAME.fullmatch(text[1:]):
            raise InvalidSpec(text, "a profile name is made of letters, digits, '-' and '_'; a path ends in .toml")
        return ShippedProfile(text[1:])
    raise InvalidSpec(text, _hint(text))


def _profile_file(text: str) -> ProfileFile:
    if not text.endswith(".toml"):
        raise InvalidSpec(text, "a profile file ends in .toml")
    if text.startswith("@"):
        raise InvalidSpec(text, f"a shipped profile is named without .toml ({text[: -len('.toml')]!r})")
    return ProfileFile(Path(text))


def _cluster(text: str) -> ClusterSpec:
    rest = text[len(_CLUSTER) :]
    for resolver in _RESOLVERS:
        if rest == resolver:
            return ClusterSpec(resolver=resolver)
    if not rest:
        raise InvalidSpec(text, _WHICH_HOSTS)
    parts = rest.split(",")
    if len(parts) > MAX_COUNT:
        raise InvalidSpec(text, f"there can be {MAX_COUNT} hosts at most")
    try:
        return ClusterSpec(distinct(parts))
    except ValueError as error:
        raise InvalidSpec(text, f"{error}; or name who knows the hosts: {', '.join(_RESOLVERS)}") from error


def _count(text: str, digits: str) -> int:
    count = int(digits)
    if count < 1:
        raise InvalidSpec(text, "there must be 1 device or more")
    if count > MAX_COUNT:
        raise InvalidSpec(text, f"there can be {MAX_COUNT} devices at most")
    return count


def _hint(text: str) -> str:
    if not text:
        return "it is empty"
    if text != text.strip() or text != text.lower():
        return "specs are lower-case and without blanks"
    if text == "cpu":
        return "say how many logical CPUs, such as 'cpu:4'"
    if text in ("cores", "core") or text.startswith("core:"):
        return "say how many CPU cores, such as 'cores:2'"
    if text == "cluster":
        return _WHICH_HOSTS
    return "unknown"
