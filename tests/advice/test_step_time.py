"""The model of time, on hand-made graphs: no TensorFlow runs here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.advice.step_time import Link, Machine, Rates, Task, step_seconds

#: A product of 1e9 operations takes a second, 1e6 bytes of memory or of a copy too.
RATES = Rates({"": 1e9}, 1e6)
MACHINE = Machine(RATES, RATES, between=Link(1e6), to_host=Link(1e6))


def product(name: str, device: str, *after: str, size_bytes: float = 0.0, flop: float = 1e9) -> Task:
    return Task(name, device, dict.fromkeys(after, size_bytes), flop)


def test_a_chain_on_one_device_takes_the_sum_of_its_ops() -> None:
    chain = [product("a", "GPU:0"), product("b", "GPU:0", "a", size_bytes=1e9), product("c", "GPU:0", "b")]
    assert step_seconds(chain, MACHINE) == pytest.approx(3.0)
    launched = replace(MACHINE, device=replace(RATES, launch_s=0.5))
    assert step_seconds(chain, launched) == pytest.approx(4.5)


def test_an_op_takes_as_long_as_its_arithmetic_or_its_memory() -> None:
    assert step_seconds([Task("a", "GPU:0", flop=1e9, traffic_bytes=5e5)], MACHINE) == pytest.approx(1.0)
    assert step_seconds([Task("a", "GPU:0", flop=1e9, traffic_bytes=4e6)], MACHINE) == pytest.approx(4.0)
    half = replace(MACHINE, device=Rates({"": 1e9, "float16": 4e9}, 1e6))
    assert step_seconds([Task("a", "GPU:0", flop=1e9, dtype="float16")], half) == pytest.approx(0.25)
    assert step_seconds([Task("a", "GPU:0", traffic_bytes=4e6, view=True)], MACHINE) == 0.0


def test_two_independent_towers_on_two_devices_take_half_the_time() -> None:
    def towers(*devices: str) -> list[Task]:
        parts = [[product(f"{n}/a", each), product(f"{n}/b", each, f"{n}/a")] for n, each in enumerate(devices)]
        return [*parts[0], *parts[1]]

    assert step_seconds(towers("GPU:0", "GPU:0"), MACHINE) == pytest.approx(4.0)
    assert step_seconds(towers("GPU:0", "GPU:1"), MACHINE) == pytest.approx(2.0)


def test_replicas_that_wait_for_each_other_are_no_faster() -> None:
    serial = [product("0", "GPU:0"), product("1", "GPU:1", "0"), product("2", "GPU:0", "1"), product("3", "GPU:1", "2")]
    assert step_seconds(serial, MACHINE) == pytest.approx(4.0)


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_a_pipeline_has_a_bubble(parts: int) -> None:
    stages = ("GPU:0", "GPU:1", "GPU:2")
    tasks = [
        product(f"{part}/{n}", device, *([f"{part}/{n - 1}"] if n else []), flop=1e9 / parts)
        for part in range(parts)
        for n, device in enumerate(stages)
    ]
    assert step_seconds(tasks, MACHINE) == pytest.approx((parts + len(stages) - 1) / parts)


def test_copies_take_longer_for_more_bytes_and_wait_for_their_link() -> None:
    def copied(size_bytes: float, *devices: str) -> list[Task]:
        return [product("a", "GPU:0"), *(product(each, each, "a", size_bytes=size_bytes) for each in devices)]

    assert step_seconds(copied(0.0, "GPU:1"), MACHINE) == pytest.approx(2.0)
    assert step_seconds(copied(1e6, "GPU:1"), MACHINE) == pytest.approx(3.0)
    assert step_seconds(copied(2e6, "GPU:1"), MACHINE) == pytest.approx(4.0)
    assert step_seconds(copied(1e6, "GPU:1", "GPU:2"), MACHINE) == pytest.approx(4.0)
    # The host sends to both at once.
    from_host = [replace(task, device="CPU:0") if task.name == "a" else task for task in copied(1e6, "GPU:1", "GPU:2")]
    assert step_seconds(from_host, MACHINE) == pytest.approx(3.0)
    slow = replace(MACHINE, between=Link(1e6, start_s=0.25, latency_s=0.5))
    assert step_seconds(copied(1e6, "GPU:1"), slow) == pytest.approx(3.75)
    # What merely waits needs no copy, and comes as late.
    waits = [*copied(1e6, "GPU:1"), product("b", "GPU:2", "a", flop=0.0)]
    assert step_seconds(waits, slow) == pytest.approx(3.75)
    assert step_seconds([product("a", "GPU:0"), product("b", "GPU:1", "a")], slow) == pytest.approx(2.5)
    # What two ops of one device need is copied once.
    twice = [*copied(1e6, "GPU:1"), product("b", "GPU:1", "a", size_bytes=1e6)]
    assert step_seconds(twice, MACHINE) == pytest.approx(4.0)


def test_what_is_ready_runs_while_something_earlier_waits() -> None:
    tasks = [
        product("far", "GPU:1", flop=2e9),
        product("late", "GPU:0", "far"),
        product("early", "GPU:0"),
    ]
    assert step_seconds(tasks, MACHINE) == pytest.approx(3.0)


@pytest.mark.parametrize(("members", "seconds"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_a_collective_takes_the_time_of_its_bytes_on_its_link(members: int, seconds: float) -> None:
    def reduced(size_bytes: float) -> list[Task]:
        names = tuple(f"sum/{n}" for n in range(members))
        first = [product(f"{n}", f"GPU:{n}", flop=1e9 if n else 2e9) for n in range(members)]
        sums = [
            Task(name, f"GPU:{n}", {f"{n}": 0.0}, traffic_bytes=size_bytes, members=names)
            for n, name in enumerate(names)
        ]
        return [*first, *sums, product("after", "GPU:1", "sum/1")]

    # All wait for the slowest device.
    assert step_seconds(reduced(0.0), MACHINE) == pytest.approx(3.0)
    assert step_seconds(reduced(1e6), MACHINE) == pytest.approx(3.0 + seconds)
    assert step_seconds(reduced(2e6), MACHINE) == pytest.approx(3.0 + 2 * seconds)
    faster = replace(MACHINE, between=Link(2e6))
    assert step_seconds(reduced(1e6), faster) == pytest.approx(3.0 + seconds / 2)


def test_devices_that_share_something_are_slower_together() -> None:
    shared = replace(MACHINE, together=1.5)
    assert step_seconds([product("a", "GPU:0"), product("b", "GPU:0")], shared) == pytest.approx(2.0)
    # The first one started alone; the last one on each device runs beside the other's.
    pairs = [product(f"{device}/{n}", device) for n in range(3) for device in ("GPU:0", "GPU:1")]
    assert 3.0 < step_seconds(pairs, shared) <= 4.5


def test_what_a_step_takes_besides_is_added() -> None:
    machine = replace(MACHINE, step_s=0.5, remote_s=0.25)
    assert step_seconds([product("a", "CPU:0")], machine) == pytest.approx(1.5)
    assert step_seconds([product("a", "GPU:0"), product("b", "GPU:1")], machine) == pytest.approx(2.0)


def test_tasks_that_can_never_start_are_an_error() -> None:
    with pytest.raises(ValueError, match="a waits for an unknown task, or for itself"):
        step_seconds([product("a", "GPU:0", "absent")], MACHINE)
    with pytest.raises(ValueError, match="waits"):
        step_seconds([product("a", "GPU:0", "b"), product("b", "GPU:0", "a")], MACHINE)
