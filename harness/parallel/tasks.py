"""Devices for tasks: independent programs, each in a process that sees one device only."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.devices.cores import allowed_cpus, usable_cores
from harness.devices.kinds.auto import AutoSpec
from harness.devices.kinds.cluster import ClusterSpec
from harness.devices.kinds.cores import CoresSpec
from harness.devices.kinds.cpu import CpuSpec
from harness.devices.kinds.gpu import GpuSpec
from harness.devices.kinds.software_gpu import DescribedGpuSpec, SoftwareGpuSpec
from harness.devices.nvidia import Card, read_cards
from harness.devices.request import resolve
from harness.devices.spec import parse_spec
from harness.errors import DevicesUnavailable, UsageError
from harness.plural import plural
from harness.softgpu import SoftwareGpus, load

#: What makes TensorFlow, and the libraries that it calls, compute on one thread.
_ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}
_ACCEPTED = "auto, cpu:N, cores:N, gpu, gpu:N, softgpu:N, softgpu:NxM, softgpu:@NAME or softgpu:FILE.toml"


@dataclass(frozen=True, slots=True)
class Slot:
    """One device that a task can have to itself.

    ``cpus`` are the CPUs that the task's process may run on (``None``: as its parent); ``environment`` is added to
    its environment; ``uuid`` is the GPU's; ``software_gpu`` is the spec of a software GPU.
    """

    name: str
    cpus: tuple[int, ...] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    uuid: str | None = None
    software_gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """A Python program and its arguments."""

    path: Path
    arguments: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Script:
        """``SCRIPT.py``, or a command line that begins with it: ``"train.py --rate 0.1"``.

        Raises:
            UsageError: there is no such file, or the text is no command line.
        """
        try:
            parts = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"script {text!r}: {error}; give a path and arguments, quoted as in a shell") from error
        if not parts:
            raise UsageError(f"script {text!r}: it is empty; give the path of a Python script")
        path = Path(parts[0])
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no such file"
            raise UsageError(f"script {parts[0]}: {what}; give the path of a Python script")
        return cls(path, tuple(parts[1:]))

    def __str__(self) -> str:
        return shlex.join([str(self.path), *self.arguments])


def slots(
    spec: str,
    *,
    cards: Sequence[Card] | None = None,
    cores: Sequence[int] | None = None,
    cpus: Sequence[int] | None = None,
) -> tuple[Slot, ...]:
    """The devices of ``spec``, each for one task at a time.

    ``cpu:N``: N slots that share the CPUs which this process may use, one each as far as they go round, with one
    thread; no GPU is seen. ``cores:N``: the same on N physical cores, no two on one. ``gpu``, ``gpu:N``: a card each,
    named by its UUID in ``CUDA_VISIBLE_DEVICES``, so that it is the one that is meant however cards are numbered.
    ``auto``: the cards where there are any, else all physical cores. ``softgpu:``: a software GPU each, which is the
    only one that its process loads; of a described machine, each GPU with its faults. ``cards``, ``cores`` and ``cpus``
    stand for those of this machine, in tests.

    Raises:
        InvalidSpec: the spec does not follow the grammar.
        DevicesUnavailable: fewer devices are available than requested.
        UsageError: devices that no process can have to itself.
    """
    request = resolve(spec)
    wanted = request.spec
    found = tuple(read_cards() if cards is None else cards)
    own_cores = tuple(usable_cores() if cores is None else cores)
    if isinstance(wanted, AutoSpec):
        wanted = GpuSpec() if found else CoresSpec(len(own_cores))
    if isinstance(wanted, GpuSpec):
        count = len(found) if wanted.count is None else wanted.count
        if not 0 < count <= len(found):
            available = [f"{card.name} ({card.uuid})" for card in found]
            needed = f"{plural(max(count, 1), 'GPU')} whose UUID the driver reports"
            advice = "" if found else DevicesUnavailable.USE_CPUS
            raise DevicesUnavailable(str(request), needed, available, advice)
        return tuple(_gpu(index, card) for index, card in enumerate(found[:count]))
    if isinstance(wanted, CoresSpec):
        if wanted.count > len(own_cores):
            available = [f"core of CPU {cpu}" for cpu in own_cores]
            raise DevicesUnavailable(str(request), f"{plural(wanted.count, 'CPU core')}, one for each task", available)
        return tuple(_cpu(index, cpu) for index, cpu in enumerate(own_cores[: wanted.count]))
    if isinstance(wanted, CpuSpec):
        allowed = sorted(allowed_cpus() if cpus is None else cpus)
        return tuple(_cpu(index, allowed[index % len(allowed)]) for index in range(wanted.count))
    if isinstance(wanted, SoftwareGpuSpec):
        spec = f"softgpu:1x{wanted.memory_mib}"
        return tuple(_software_gpu(index, spec, wanted.memory_mib) for index in range(wanted.count))
    if isinstance(wanted, DescribedGpuSpec):
        gpus = wanted.gpus()
        spec, driver = f"softgpu:{wanted.path}", dict(gpus.driver)
        uuids = [driver[f"cuda.{index}.uuid"] for index in range(gpus.count)]
        return tuple(_software_gpu(index, spec, gpus.memory_of(index), uuid) for index, uuid in enumerate(uuids))
    if isinstance(wanted, ClusterSpec):
        raise UsageError(
            f"--devices {spec}: tasks run on this host only; to use another host, run this command there; "
            f"accepted: {_ACCEPTED}"
        )
    raise UsageError(f"--devices {spec}: each task is a process that needs a device of its own; accepted: {_ACCEPTED}")


def _cpu(index: int, cpu: int) -> Slot:
    return Slot(f"CPU:{index} (CPU {cpu})", (cpu,), {**_ONE_THREAD, "CUDA_VISIBLE_DEVICES": "-1"})


def _gpu(index: int, card: Card) -> Slot:
    environment = {"CUDA_VISIBLE_DEVICES": card.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return Slot(f"GPU:{index} ({card.name}, {card.uuid})", None, environment, card.uuid)


def _software_gpu(index: int, spec: str, memory_mib: int, uuid: str = "-1") -> Slot:
    """A slot with a software GPU; of a described machine, the one with this UUID."""
    which = "" if uuid == "-1" else f", {uuid}"
    name = f"GPU:{index} (software GPU, {memory_mib:,} MiB{which})"
    return Slot(name, None, {"CUDA_VISIBLE_DEVICES": uuid}, software_gpu=spec)


def take(cpus: Sequence[int] | None, environment: dict[str, str], software_gpu: str | None = None) -> None:
    """Make this process one that sees its device alone: before TensorFlow is loaded, or with its software GPU.

    Raises:
        SoftwareGpusUnavailable: the library of software GPUs cannot be built.
    """
    os.environ.update(environment)
    if cpus is not None:
        # An affinity holds for one thread, and the thread of a worker process that watches the parent runs already.
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), cpus)
    if software_gpu is not None:
        import tensorflow as tf

        wanted = parse_spec(software_gpu)
        if isinstance(wanted, DescribedGpuSpec):
            load(tf, wanted.gpus(environment["CUDA_VISIBLE_DEVICES"]))
        elif isinstance(wanted, SoftwareGpuSpec):
            load(tf, SoftwareGpus(wanted.count, wanted.memory_mib))
