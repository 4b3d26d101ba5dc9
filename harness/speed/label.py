"""Labels a speedup, and decides whether the gate may judge it (FAULTS S06).

Logical GPUs share one GPU. Logical CPUs share one thread pool: they are as independent as GPUs only if each op uses one
thread, as many ops run at once as there are devices, and the process may use as many CPU cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.devices.cores import allowed_cpu_time, usable_cores
from harness.devices.device import Device
from harness.lazy import tf
from harness.plural import plural


@dataclass(frozen=True, slots=True)
class Label:
    """``text`` describes the speedup; ``gates`` says whether the gate may judge it."""

    text: str
    gates: bool


def label_of(kind: str, count: int, intra_op: int, inter_op: int, cores: int) -> Label:
    """Label a speedup on ``count`` devices of one kind.

    ``intra_op`` and ``inter_op`` are TensorFlow's threads in this process (0: its choice), ``cores`` the physical cores
    that it may use by its affinity and quota. They only matter for CPUs.
    """
    if kind == "logical-gpu":
        return Label("logical GPUs share one GPU: not a speedup", gates=False)
    if kind == "software-gpu":
        computing = f"which compute{'' if count > 1 else 's'} on the CPU"
        return Label(f"{plural(count, 'software GPU')}, {computing}: not a GPU's speedup", gates=False)
    if kind == "gpu":
        return Label(plural(count, "GPU"), gates=True)
    if kind == "core" and cores < count:
        return Label(f"{plural(count, 'CPU core')} with a CPU quota of {cores}: not a speedup", gates=False)
    if kind == "core":
        each = "each with its own" if count > 1 else "with a"
        return Label(f"{plural(count, 'CPU core')}, {each} single-threaded TensorFlow server", gates=True)
    if kind != "logical-cpu":
        return Label(
            f"{plural(count, f'{kind} device')} whose threads and GPUs are unknown: not a speedup", gates=False
        )
    wrong = []
    if intra_op != 1:
        wrong.append(f"{_threads(intra_op, 'intra-op')} instead of 1")
    if inter_op != count:
        wrong.append(f"{_threads(inter_op, 'inter-op')} instead of {count:,}")
    if cores < count:
        wrong.append(f"{plural(cores, 'core')} for {plural(count, 'device')}")
    if wrong:
        return Label(f"logical CPUs share one thread pool: not a speedup ({', '.join(wrong)})", gates=False)
    threads = "one thread each" if count > 1 else "one thread"
    return Label(f"{plural(count, 'logical CPU')}, {threads}, on {plural(cores, 'CPU core')}", gates=True)


def _threads(number: int, kind: str) -> str:
    return plural(number, f"{kind} thread") if number else f"all {kind} threads"


def speed_label(devices: Sequence[Device]) -> Label:
    """Label a speedup on these devices in this process. TensorFlow is loaded, its runtime not started."""
    cores, quota = len(usable_cores()), allowed_cpu_time()
    return label_of(
        kind_of(devices),
        len(devices),
        tf.config.threading.get_intra_op_parallelism_threads(),
        tf.config.threading.get_inter_op_parallelism_threads(),
        cores if quota is None else min(cores, int(quota)),
    )


def kind_of(devices: Sequence[Device]) -> str:
    """Name the kind of these devices; several kinds are joined with "+"."""
    return "+".join(sorted({str(device.kind) for device in devices}))
