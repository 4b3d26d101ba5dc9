"""A machine of NumPy with faults that can be switched on: what the hardware checks are shown both ways with.

Software GPUs execute the faults of described machines (``tests/faults``). They cannot be wrong in one chosen run or by
one last bit, have a rate that a check judges, a clock that stands still, or another machine's missing kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.checking.check import CheckContext, Level
from harness.devices.device import Devices
from harness.hardware.machine import Job, Mismatch, Operation, PairLink, Pattern, Ran, Reading
from harness.hardware.memory_settings.setting import MemorySeen, MemorySetting
from harness.hardware.operations import NoKernel, numpy_dtype
from harness.hardware.patterns import array_mismatch, words
from harness.hardware.software.installed import Software
from harness.records import Card

GPU_SOFTWARE = Software(
    tensorflow="2.21.0",
    numpy="2.2.0",
    python="3.11.4",
    onednn=True,
    built_with_cuda=True,
    built_cuda="12.5.1",
    built_cudnn="9.3.0",
    driver="560.35.03",
    driver_cuda="12.6",
    cudnn="9.5.1",
    nccl="2.25.1",
    kernels_sass=("6.0", "7.0", "8.0", "8.9"),
    kernels_ptx=("9.0",),
    tf32=True,
)
CPU_SOFTWARE = Software("2.21.0", "2.2.0", "3.11.4", onednn=True)

#: What a fault does to a result: it is given the operation, the label of the card and how often that card has run.
Change = Callable[[Operation, str, int, NDArray[Any]], NDArray[Any]]


def gpus(count: int, name: str = "Example GPU", capability: str = "8.9") -> tuple[Card, ...]:
    return tuple(
        Card(
            f"GPU:{index}",
            name,
            device=f"/job:localhost/replica:0/task:0/device:GPU:{index}",
            index=index,
            uuid=f"GPU-{index:08d}",
            pci=f"0000:{index + 1:02X}:00.0",
            compute_capability=capability,
        )
        for index in range(count)
    )


def cpus(count: int) -> tuple[Card, ...]:
    return tuple(
        Card(f"CPU:{index}", "a CPU", device=f"/job:localhost/replica:0/task:0/device:CPU:{index}", index=index)
        for index in range(count)
    )


@dataclass
class NumpyMachine:
    """Rates are 1 TFLOP/s and 1 TB/s; ``speed`` says of a card how much faster or slower it is."""

    cards: tuple[Card, ...]
    facts: Software = GPU_SOFTWARE
    change: Change = lambda operation, card, number, result: result
    speed: dict[str, float] = field(default_factory=dict)
    without_kernels: tuple[str, ...] = ()
    dropped: int | None = None
    dropped_by: str = "ring"
    stopped: bool = False
    now_s: float = 0.0
    ran: dict[str, int] = field(default_factory=dict)
    known: dict[Any, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def present(self) -> tuple[Card, ...]:
        return self.cards

    @property
    def unusable(self) -> tuple[Card, ...]:
        return ()

    def clock_s(self) -> float:
        return 0.0 if self.stopped else self.now_s

    def wait_s(self, seconds: float) -> None:
        self.now_s += seconds

    def software(self) -> Software:
        return self.facts

    def reading(self, card: str) -> Reading:
        return Reading(self.now_s)

    def free_bytes(self, card: str) -> int | None:
        return None

    def used_bytes(self, card: str) -> int | None:
        return None

    def holders(self) -> dict[tuple[str, int], int | None]:
        return {}

    def pair_links(self) -> dict[tuple[str, str], PairLink]:
        return {}

    def memory_settings(self, trials: Sequence[tuple[str, MemorySetting]]) -> list[MemorySeen | str]:
        raise NotImplementedError

    def fill(self, card: str, size_bytes: int, pattern: Pattern) -> Any:
        return card, lambda: words(pattern, size_bytes // 8)

    def mismatch(self, buffer: Any, pattern: Pattern) -> Mismatch:
        return array_mismatch(buffer[1](), pattern)

    def put(self, array: NDArray[Any], card: str) -> Any:
        return card, lambda: array

    def fetch(self, buffer: Any) -> NDArray[Any]:
        array: NDArray[Any] = buffer[1]()
        return array

    def move(self, buffer: Any, card: str, repeats: int = 1) -> Any:
        return card, buffer[1]

    def exchange(self, moves: Sequence[tuple[Any, str]], repeats: int = 1) -> list[Any]:
        return [self.move(buffer, card) for buffer, card in moves]

    def run(self, operation: Operation, card: str, buffers: Sequence[Any], repeats: int = 1) -> Any:
        assert all(buffer[0] == card for buffer in buffers), "operands lie on the card"
        if operation.name in self.without_kernels:
            raise NoKernel(f"Could not find device for node: {operation.name}")
        self.ran[card] = self.ran.get(card, 0) + 1
        number = self.ran[card]
        amount = operation.flop if operation.name.startswith("matmul") else operation.traffic_bytes
        self.now_s += repeats * (amount or 0.0) / (1e12 * self.speed.get(card, 1.0))
        # Computed when somebody looks at it.
        return card, lambda: self.change(
            operation, card, number, self._computed(operation, [buffer[1]() for buffer in buffers])
        )

    def at_once(self, jobs: Sequence[Job], meanwhile: Callable[[], None] | None = None) -> list[Ran]:
        made = []
        for job in jobs:
            began = self.clock_s()
            result = self.run(job.operation, job.card, job.buffers, job.repeats)
            made.append(Ran(result, self.clock_s() - began))
        if meanwhile is not None:
            meanwhile()
        return made

    def _computed(self, operation: Operation, arrays: list[NDArray[Any]]) -> NDArray[Any]:
        """Once for all cards and repetitions, which share the operands."""
        key = (operation.name, *map(id, arrays))
        if key not in self.known:
            result = operation.reference(*arrays).astype(numpy_dtype(operation.result_dtype))
            self.known[key] = (arrays, result)
        known: NDArray[Any] = self.known[key][1]
        return known

    def collective(self, kind: str, algorithm: str, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        given = list(arrays)
        if self.dropped is not None and algorithm == self.dropped_by:
            given[self.dropped] = np.zeros_like(given[self.dropped])
        self.now_s += sum(each.nbytes for each in arrays) / 1e11
        count = len(given)
        if kind == "broadcast":
            return [given[0].copy() for _ in range(count)]
        if kind == "all-gather":
            return [np.concatenate(given) for _ in range(count)]
        total = sum(given[1:], given[0])
        return [total.copy() for _ in range(count)] if kind == "all-reduce" else np.split(total, count)

    def algorithms(self) -> tuple[str, ...]:
        return ("ring", "reduce-to-one")


def context(machine: NumpyMachine | None, level: Level = Level.QUICK) -> CheckContext:
    return CheckContext(Devices([], spec="described"), level=level, machine=machine)


def wrong_element(
    operation: str, card: str, relative: float, *, only: Callable[[int], bool] = lambda _: True
) -> Change:
    """One element of the results of ``operation`` on ``card`` is off by ``relative``, in runs that ``only`` takes."""

    def change(of: Operation, on: str, number: int, result: NDArray[Any]) -> NDArray[Any]:
        if of.name != operation or on != card or not only(number):
            return result
        changed: NDArray[Any] = result.copy()
        changed.flat[7] = changed.flat[7] * (1 + relative) if relative else np.nextafter(changed.flat[7], 99)
        return changed

    return change


def with_software(**facts: Any) -> Software:
    return replace(GPU_SOFTWARE, **facts)
