"""What a described machine does by itself: its clock, its memory, its results, and its faults where they belong."""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import pytest
from described_machines import H100, machine

from harness.hardware.machine import HOST, DeviceMemoryFull, Job, Mismatch, Operation, Pattern, at_once

DOUBLE = Operation("double", "float32", "float32", lambda x: x + x, lambda x: x + x, flop=1e9)
GB = 10**9


def _matmul(dtype: str) -> Operation:
    return Operation(f"matmul {dtype}", dtype, dtype, lambda a, b: a, lambda a, b: a @ b, flop=1e12)


def test_what_takes_hours_of_its_time_takes_none_of_ours() -> None:
    made = machine(1)
    began = time.perf_counter()
    made.wait_s(3600)
    made.run(DOUBLE, "GPU:0", [made.put(np.ones(4, np.float32), "GPU:0")], repeats=10**9)
    assert made.clock_s() > 3600
    assert time.perf_counter() - began < 5


def test_a_copy_takes_its_bytes_over_its_bandwidth() -> None:
    made = machine(2, H100, top="noise = 0.0")
    buffer = made.fill("GPU:0", 8 * GB, Pattern(1))
    began = made.clock_s()
    made.move(buffer, "GPU:1")
    assert made.clock_s() - began == pytest.approx(8 / (18 * 21.0), rel=0.02)


def test_eighty_gigabytes_are_filled_and_compared_without_memory() -> None:
    made = machine(1)
    free = made.free_bytes("GPU:0")
    assert free is not None
    buffer = made.fill("GPU:0", free // 8 * 8, Pattern(7, 3))
    assert made.mismatch(buffer, Pattern(7, 3)) == Mismatch(0)
    assert made.mismatch(buffer, Pattern(7, 5)).count == free // 8 - 1
    with pytest.raises(DeviceMemoryFull, match="GPU:0 could not allocate"):
        made.fill("GPU:0", 8, Pattern(0))
    del buffer
    assert made.free_bytes("GPU:0") == free
    assert made.free_bytes(HOST) is None


def test_the_same_description_does_the_same_twice_and_another_seed_something_else() -> None:
    def course(seed: int) -> tuple[float, list[float]]:
        made = machine(2, H100, "bit-flip card = 1, probability = 0.5", top=f"seed = {seed}")
        buffer = made.put(np.arange(8, dtype=np.float32), "GPU:1")
        results = [made.fetch(made.run(DOUBLE, "GPU:1", [buffer])) for _ in range(20)]
        return made.clock_s(), [float(np.nansum(result)) for result in results]

    assert course(1) == course(1)
    assert course(1) != course(2)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_results_are_the_reference_rounded_once(dtype: str) -> None:
    made = machine(1)
    a, b = (np.random.default_rng(each).normal(size=(8, 8)) for each in (1, 2))
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    buffers = [made.put(array.astype(kind), "GPU:0") for array in (a, b)]
    result = made.fetch(made.run(_matmul(dtype), "GPU:0", buffers))
    assert result.dtype == kind
    exact = a.astype(kind).astype(np.float64) @ b.astype(kind).astype(np.float64)
    assert np.array_equal(result, exact.astype(kind))


def test_an_array_that_is_changed_after_it_was_put_does_not_change_there() -> None:
    made = machine(1)
    array = np.ones(4, np.float32)
    buffer = made.put(array, "GPU:0")
    array[:] = 5
    assert made.fetch(buffer).tolist() == [1, 1, 1, 1]


def test_a_buffer_of_another_card_is_refused() -> None:
    made = machine(2)
    with pytest.raises(ValueError, match="a buffer of GPU:0 was given to GPU:1"):
        made.run(DOUBLE, "GPU:1", [made.put(np.ones(1, np.float32), "GPU:0")])


def test_jobs_at_once_take_as_long_as_the_longest_and_the_index_fault_is_there_alone() -> None:
    made = machine(3, H100, "wrong-index index = 1", top="noise = 0.0")
    buffers = [made.put(np.ones(4, np.float32), f"GPU:{index}") for index in range(3)]
    seen: list[tuple[float, int | None]] = []
    began = made.clock_s()
    jobs = [Job(DOUBLE, f"GPU:{index}", (buffers[index],), 100 * (index + 1)) for index in (2, 0, 1)]
    ran = at_once(made, jobs, lambda: seen.append((made.clock_s(), made.reading("GPU:0").pcie_generation)))
    assert made.clock_s() - began == pytest.approx(max(each.elapsed_s for each in ran))
    assert [made.fetch(each.result).tolist() == [2] * 4 for each in ran] == [True, False, True]
    assert len(seen) == 1
    assert began < seen[0][0] < made.clock_s()
    assert seen[0][1] == 5, "while it works its link is awake"
    alone = made.run(DOUBLE, "GPU:1", [buffers[1]])
    assert made.fetch(alone).tolist() == [2] * 4


def test_an_idle_link_sleeps_and_a_hot_card_slows_down() -> None:
    made = machine(1, H100, "hot card = 0", top="noise = 0.0")
    assert made.reading("GPU:0").pcie_generation == 1
    buffer = made.put(np.ones(4, np.float32), "GPU:0")
    times = [at_once(made, [Job(DOUBLE, "GPU:0", (buffer,), 10_000)])[0].elapsed_s for _ in range(30)]
    assert times[-1] > 1.2 * times[0]
    hot = made.reading("GPU:0")
    assert hot.temperature_c is not None
    assert hot.temperature_c > 87
    assert "HwThermalSlowdown" in (hot.throttle_reasons or ())
    made.wait_s(600)
    cool = machine(1).reading("GPU:0")
    assert cool.throttle_reasons == ("GpuIdle",)


@pytest.mark.parametrize("fault", ["zeros pair = [1, 3]", "pair-flip pair = [1, 3]"])
def test_a_faulty_way_is_faulty_one_way_and_for_arrays_too(fault: str) -> None:
    made = machine(4, H100, fault)
    array = np.arange(1, 100, dtype=np.float64)
    there = made.fetch(made.move(made.put(array, "GPU:1"), "GPU:3"))
    back = made.fetch(made.move(made.put(array, "GPU:3"), "GPU:1"))
    assert not np.array_equal(there, array)
    assert np.array_equal(back, array)
    assert made.mismatch(made.move(made.fill("GPU:1", 800, Pattern(3, 1)), "GPU:3"), Pattern(3, 1)).count
    assert not made.mismatch(made.move(made.fill("GPU:3", 800, Pattern(3, 1)), "GPU:1"), Pattern(3, 1)).count


def test_a_stuck_bit_is_read_back_where_it_differs_from_what_was_written() -> None:
    made = machine(1, H100, "stuck-bit card = 0, word = 1000, bit = 5, value = 1")
    pattern = Pattern(0)
    assert made.mismatch(made.fill("GPU:0", 16_000, pattern), pattern) == Mismatch(1, 1000, 32)
    ones = Pattern(2**64 - 1)
    assert made.mismatch(made.fill("GPU:0", 16_000, ones), ones) == Mismatch(0)
    assert made.fetch(made.fill("GPU:0", 16_000, pattern))[1000] == 32


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "broadcast"])
def test_collectives_are_exact_and_leave_a_share_out_where_that_is_planted(kind: str) -> None:
    arrays = [np.arange(6, dtype=np.float32) + 10 * each for each in range(3)]
    whole = machine(3).collective(kind, "ring", arrays)
    total = np.sum(arrays, axis=0)
    right = {
        "all-reduce": [total] * 3,
        "all-gather": [np.concatenate(arrays)] * 3,
        "reduce-scatter": np.split(total, 3),
        "broadcast": [arrays[0]] * 3,
    }[kind]
    assert all(np.array_equal(one, other) for one, other in zip(whole, right, strict=True))
    faulty = machine(3, H100, 'collective-drop card = 1, algorithm = "ring"')
    dropped = faulty.collective(kind, "ring", arrays)
    assert not all(np.array_equal(one, other) for one, other in zip(dropped, right, strict=True))
    other = faulty.collective(kind, "nccl", arrays)
    assert all(np.array_equal(one, each) for one, each in zip(other, right, strict=True)), "the ring alone drops it"
    with pytest.raises(ValueError, match="accepted: one for each of the 3 cards"):
        faulty.collective(kind, "ring", arrays[:2])


def test_wrong_arithmetic_is_wrong_in_one_dtype_alone() -> None:
    made = machine(2, H100, 'wrong-arithmetic card = 1, dtype = "float32"')
    for dtype, card, same in (("float32", "GPU:1", False), ("float64", "GPU:1", True), ("float32", "GPU:0", True)):
        array = np.eye(4).astype(dtype) * 3
        result = made.fetch(made.run(_matmul(dtype), card, [made.put(array, card)] * 2))
        assert np.array_equal(result, array @ array) is same
