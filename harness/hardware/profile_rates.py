"""Measures what the cards of a machine reach: the figures of a hardware profile."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from harness.hardware.operation import Operation

if TYPE_CHECKING:
    from harness.hardware.machine import Machine
    from harness.records import Card

#: Times of one figure; the fastest counts, because whatever else runs only makes them longer. The first one, which
#: builds and warms up, does not.
ROUNDS = 7
#: How long one time is meant to take, in seconds: long beside what starting an op and seeing its result takes (some
#: 100 µs), so that what is over sooner is run several times. A short one is for what the host's other work disturbs.
_ROUND_S, _SHORT_ROUND_S = 0.1, 0.02
#: Sides of the matrices: what the time is guessed from, and the largest, with which GPUs are at their best.
_FIRST_SIDE, _LARGEST_SIDE = 256, 8192
#: Elements of a float32 vector whose addition shows the memory: on a GPU far more than its cache, on a CPU just as
#: much as the C library hands out again without new pages (32 MiB), because new pages are no figure of the memory.
_GPU_ELEMENTS, _CPU_ELEMENTS = 64 * 1024 * 1024, 4 * 1024 * 1024
_GPU_COPY_BYTES, _CPU_COPY_BYTES = 256 * 1024 * 1024, 64 * 1024 * 1024
#: Large copies from card to card are made so often in one call, so that what the call itself costs is told once.
COPIES = 6

_PRODUCTS = ("float64", "float32", "tfloat32", "float16", "bfloat16", "int8")


@dataclass(frozen=True, slots=True)
class Rate:
    """One figure of a card, in the unit of ``hardware_schema.FIGURE_UNITS``: of the fastest time, and of the median."""

    figure: str
    value: float
    median: float


def measure(machine: Machine) -> Iterator[tuple[Card, Rate]]:
    """All figures of all cards, one after the other. A dtype that the cards have no kernel for is left out."""
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
    """The figure of several cards of one kind: the median over the cards."""
    return Rate(
        rates[0].figure,
        statistics.median(rate.value for rate in rates),
        statistics.median(rate.median for rate in rates),
    )


def product_of(side: int, dtype: str) -> Operation:
    """The product of two matrices ``[side, side]``."""

    def multiply(a: Any, b: Any) -> Any:
        import tensorflow as tf

        return tf.matmul(a, b, output_type=tf.int32) if dtype == "int8" else tf.matmul(a, b)

    return Operation(
        name=f"matmul {dtype} of {side}",
        dtype="float32" if dtype == "tfloat32" else dtype,
        result_dtype={"tfloat32": "float32", "int8": "int32"}.get(dtype, dtype),
        tensorflow=multiply,
        reference=lambda a, b: a @ b,
        flop=2.0 * side**3,
    )


def product_rate(machine: Machine, card: Card, dtype: str) -> Rate | None:
    """Matrix products in GFLOP/s; ``None`` where there is no such kernel, or no TF32."""
    import tensorflow as tf

    on_gpu = card.uuid is not None or card.label.rpartition("/")[2].startswith("GPU")
    if dtype == "tfloat32" and not (on_gpu and _has_tf32(card)):
        return None
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(dtype == "tfloat32")
    try:
        return _product_rate(machine, card, dtype, tf)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        return None
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def _product_rate(machine: Machine, card: Card, dtype: str, tensorflow: Any) -> Rate:
    def run_of(side: int) -> Callable[[int], object]:
        operation = product_of(side, dtype)
        arrays = matrices(side, tensorflow.as_dtype(operation.dtype).as_numpy_dtype)
        buffers = [machine.put(array, card.label) for array in arrays]
        return lambda repeats: machine.run(operation, card.label, buffers, repeats)

    side, run, repeats = _FIRST_SIDE, run_of(_FIRST_SIDE), 1
    # A short time tells little of a large product, whose rate is higher: so it is guessed twice.
    for _ in range(2):
        fastest_s = min(times_s(machine, partial(run, 1), 3))
        before, side = side, int(min(_LARGEST_SIDE, max(side, side * (_ROUND_S / fastest_s) ** (1 / 3))) // 64 * 64)
        run, repeats = run_of(side), _repeats(fastest_s * (side / before) ** 3, _ROUND_S)
    times = times_s(machine, partial(run, repeats), ROUNDS)
    return _rate(f"matmul {dtype}", repeats * 2.0 * side**3 / 1e9, times)


def _repeats(once_s: float, round_s: float) -> int:
    return max(1, round(round_s / once_s))


def matrices(side: int, dtype: Any) -> list[npt.NDArray[Any]]:
    """Two matrices ``[side, side]`` of small numbers, the same each time."""
    random = np.random.default_rng(0)
    return [random.integers(-4, 5, (side, side)).astype(dtype) for _ in range(2)]


def memory_rate(machine: Machine, card: Card) -> Rate:
    """The sum of two vectors: two reads and a write, in GB/s."""
    elements = _CPU_ELEMENTS if _is_cpu(card) else _GPU_ELEMENTS
    addition = Operation("addition float32", "float32", "float32", lambda a, b: a + b, lambda a, b: a + b)
    vectors = [machine.put(np.full(elements, 1.5, np.float32), card.label) for _ in range(2)]

    def run(repeats: int) -> object:
        return machine.run(addition, card.label, vectors, repeats)

    repeats = _repeats(min(times_s(machine, partial(run, 1), 3)), _SHORT_ROUND_S)
    times = times_s(machine, partial(run, repeats), 3 * ROUNDS)
    return _rate("memory bandwidth", repeats * 12.0 * elements / 1e9, times)


def copy_rates(machine: Machine, card: Card) -> Iterator[Rate]:
    """Copies with the host and to the next card, in GB/s."""
    size = _CPU_COPY_BYTES if _is_cpu(card) else _GPU_COPY_BYTES
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
    """How long ``rounds`` calls took, in seconds, after one that does not count. Results are let go in between."""
    call()
    times = []
    for _ in range(rounds):
        start = machine.clock_s()
        call()
        times.append(max(machine.clock_s() - start, 1e-9))
    return times


def _rate(figure: str, amount: float, times: Sequence[float]) -> Rate:
    return Rate(figure, amount / min(times), amount / statistics.median(times))


def _is_cpu(card: Card) -> bool:
    return card.label.rpartition("/")[2].startswith("CPU")


def _has_tf32(card: Card) -> bool:
    """Tensor cores have TF32 from compute capability 8.0 on."""
    return card.compute_capability is not None and int(card.compute_capability.split(".")[0]) >= 8
