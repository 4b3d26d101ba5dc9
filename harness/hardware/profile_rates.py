"""Measures what the cards of a machine reach, for ``harness profile-machine``."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.errors import UsageError
from harness.hardware.machine import Machine
from harness.hardware.operations import addition, matmul, numpy_dtype
from harness.hardware.tensor_float import may_use, tf32_set
from harness.lazy import tf
from harness.records import Card
from harness.runner.job import typed_task
from harness.runner.messages import Answer, plain
from harness.runner.worker import Send

#: Times of one figure. The fastest counts, because other work only makes them longer. The first one, which builds and
#: warms up, does not count.
ROUNDS = 7
#: Target length of one time, in seconds: long compared with starting an op and reading its result (some 100 µs), so
#: faster operations are repeated. A short one is for what other work of the host disturbs.
_ROUND_S, _SHORT_ROUND_S = 0.1, 0.02
#: Sides of the matrices: the first, from which the time is estimated, and the largest, best for GPUs.
_FIRST_SIDE, _LARGEST_SIDE = 256, 8192
#: Elements of a float32 vector whose addition measures the memory: on a GPU far more than its cache, on a CPU as much
#: as the C library reuses without new pages (32 MiB), because getting pages would be measured too.
_GPU_ELEMENTS, _CPU_ELEMENTS = 64 * 1024 * 1024, 4 * 1024 * 1024
_GPU_COPY_BYTES, _CPU_COPY_BYTES = 256 * 1024 * 1024, 64 * 1024 * 1024
#: Large copies between cards are repeated in one call, so that the cost of the call is measured once.
COPIES = 6

_PRODUCTS = ("float64", "float32", "tfloat32", "float16", "bfloat16", "int8")


@dataclass(frozen=True, slots=True)
class Rate:
    """One figure of a card, in the unit of ``profile_schema.FIGURE_UNITS``: of the fastest time, and of the median."""

    figure: str
    value: float
    median: float


@typed_task
def run(send: Send, spec: str) -> None:
    """Measure each card of ``spec`` and send the joined figures: the task of a worker process."""
    from harness.devices.runtime import configure
    from harness.hardware.real import TensorFlowMachine

    devices = configure(spec)
    if any(device.kind == "logical-gpu" for device in devices):
        raise UsageError(f"--devices {spec}: logical GPUs share a card; accepted: gpu, gpu:N, cpu:N or cores:N")
    machine = TensorFlowMachine(devices)
    names = sorted({card.name for card in machine.cards})
    if len(names) > 1:
        raise UsageError(
            f"--devices {spec}: devices of several models ({', '.join(names)}); select devices of one model"
        )
    figures: dict[str, list[Rate]] = {}
    for _, rate in measure(machine):
        figures.setdefault(rate.figure, []).append(rate)
    send(
        Answer(
            {
                "name": names[0],
                "cards": [card.label for card in machine.cards],
                "reason": devices.reason,
                "rates": [plain(joined(rates)) for rates in figures.values()],
            }
        )
    )


def measure(machine: Machine) -> Iterator[tuple[Card, Rate]]:
    """Measure all figures of all cards, one after the other. A dtype without a kernel is left out."""
    for card in machine.cards:
        for dtype in _PRODUCTS:
            rate = product_rate(machine, card, dtype)
            if rate is not None:
                yield card, rate
        yield card, memory_rate(machine, card)
        yield from ((card, rate) for rate in copy_rates(machine, card))
        reading = machine.reading(card.label)
        for figure, value in (
            ("pcie width", reading.pcie_width),
            ("pcie generation", reading.pcie_generation),
            ("power limit", reading.power_limit_w),
        ):
            if value is not None:
                yield card, Rate(figure, float(value), float(value))


def joined(rates: Sequence[Rate]) -> Rate:
    """Return the medians over several cards of one model."""
    values, medians = [rate.value for rate in rates], [rate.median for rate in rates]
    return Rate(rates[0].figure, statistics.median(values), statistics.median(medians))


def product_rate(machine: Machine, card: Card, dtype: str) -> Rate | None:
    """Measure matrix products in GFLOP/s; ``None`` without a kernel, or without TF32."""
    if dtype == "tfloat32" and not (card.compute_capability and may_use(card, True)):
        return None
    try:
        with tf32_set(dtype == "tfloat32"):
            return _product_rate(machine, card, dtype)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        return None


def _product_rate(machine: Machine, card: Card, dtype: str) -> Rate:
    def run_of(side: int) -> Callable[[int], object]:
        operation = matmul(side, "float32" if dtype == "tfloat32" else dtype)
        arrays = matrices(side, numpy_dtype(operation.dtype))
        buffers = [machine.put(array, card.label) for array in arrays]
        return lambda repeats: machine.run(operation, card.label, buffers, repeats)

    side, multiply, repeats = _FIRST_SIDE, run_of(_FIRST_SIDE), 1
    # The rate of a large product is higher than that of a small one, so the side is estimated twice.
    for _ in range(2):
        fastest_s = min(times_s(machine, partial(multiply, 1), 3))
        before, side = side, int(min(_LARGEST_SIDE, max(side, side * (_ROUND_S / fastest_s) ** (1 / 3))) // 64 * 64)
        multiply, repeats = run_of(side), _repeats(fastest_s * (side / before) ** 3, _ROUND_S)
    times = times_s(machine, partial(multiply, repeats), ROUNDS)
    return _rate(f"matmul {dtype}", repeats * 2.0 * side**3 / 1e9, times)


def _repeats(once_s: float, round_s: float) -> int:
    return max(1, round(round_s / once_s))


def matrices(side: int, dtype: Any) -> list[npt.NDArray[Any]]:
    """Return two matrices ``[side, side]`` of small numbers, the same each time."""
    random = np.random.default_rng(0)
    return [random.integers(-4, 5, (side, side)).astype(dtype) for _ in range(2)]


def memory_rate(machine: Machine, card: Card) -> Rate:
    """Measure the addition of two vectors, which is two reads and a write, in GB/s."""
    elements = _GPU_ELEMENTS if card.is_gpu else _CPU_ELEMENTS
    operation = addition(elements, "float32")
    vectors = [machine.put(np.full(elements, 1.5, np.float32), card.label) for _ in range(2)]

    def add(repeats: int) -> object:
        return machine.run(operation, card.label, vectors, repeats)

    repeats = _repeats(min(times_s(machine, partial(add, 1), 3)), _SHORT_ROUND_S)
    times = times_s(machine, partial(add, repeats), 3 * ROUNDS)
    return _rate("memory bandwidth", repeats * 12.0 * elements / 1e9, times)


def copy_rates(machine: Machine, card: Card) -> Iterator[Rate]:
    """Measure copies with the host and to the next card, in GB/s."""
    size = _GPU_COPY_BYTES if card.is_gpu else _CPU_COPY_BYTES
    array = np.arange(size // 8, dtype=np.int64)
    there = machine.put(array, card.label)
    yield _rate("copy host-to-device", size / 1e9, times_s(machine, lambda: machine.put(array, card.label), ROUNDS))
    yield _rate("copy device-to-host", size / 1e9, times_s(machine, lambda: machine.fetch(there), ROUNDS))
    labels = [each.label for each in machine.cards]
    if len(labels) > 1:
        to = labels[(labels.index(card.label) + 1) % len(labels)]
        times = times_s(machine, lambda: machine.move(there, to, COPIES), ROUNDS)
        yield _rate("copy device-to-device", COPIES * size / 1e9, times)


def times_s(machine: Machine, call: Callable[[], object], rounds: int) -> list[float]:
    """Time ``rounds`` calls in seconds, after one that does not count. Results are released in between."""
    call()
    times = []
    for _ in range(rounds):
        start = machine.clock_s()
        call()
        times.append(max(machine.clock_s() - start, 1e-9))
    return times


def _rate(figure: str, amount: float, times: Sequence[float]) -> Rate:
    return Rate(figure, amount / min(times), amount / statistics.median(times))
