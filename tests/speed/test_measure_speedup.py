"""A whole measurement with TensorFlow: what the record holds, and the faults that it names. How fast is no matter."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from sides import SIZE, Chains, measure

import harness
from harness.speed.measure import quiet


@pytest.fixture(scope="module")
def chains(devices: harness.Devices) -> Chains:
    return Chains(devices)


def _about(record: harness.SpeedupRecord, words: str) -> list[str]:
    return [warning for warning in record.warnings if words in warning]


#: Warnings on where and how a program runs; others depend on how busy the machine is.
_FAULTS = ("traced", "reads a tensor", "`single` ran", "`parallel` ran", "one by one", "host", "more than", "NaN")


@pytest.mark.devices(min=2)
def test_a_clean_program_has_a_whole_record_and_no_fault(chains: Chains, devices: harness.Devices) -> None:
    flops = 2.0 * 3 * len(devices) * SIZE**3
    record = harness.measure_speedup(
        chains.single, chains.parallel, devices=devices, work=harness.Work(flops=flops), budget_s=0.05, half_width=0.9
    )
    assert [words for words in _FAULTS if _about(record, words)] == [], record.warnings
    assert record.devices == devices.names
    assert record.speedup.lower <= record.speedup.value <= record.speedup.upper
    assert record.efficiency == record.speedup.value / len(devices)
    assert len(record.single_ns) == len(record.parallel_ns) >= 5
    assert all(isinstance(time, int) and time > 0 for time in record.single_ns + record.parallel_ns)
    assert record.elapsed_s >= sum(record.single_ns + record.parallel_ns) / 1e9
    assert record.stopped in ("precise", "budget")
    assert record.flops == flops
    assert record.single_flops_per_s is not None
    assert record.single_bytes_per_s is None
    assert record.parallel_flops_per_s == pytest.approx(
        flops / sorted(record.parallel_ns)[len(record.parallel_ns) // 2] * 1e9, rel=0.5
    )
    assert record.transfers == len(devices) - 1, "every other power goes to the first device"
    assert record.transferred_bytes == 4 * SIZE * SIZE * (len(devices) - 1)
    assert [memory.device for memory in record.memory] == list(devices.names)
    json.dumps(asdict(record), allow_nan=False)


@pytest.mark.devices(min=2, kind="logical-cpu")
def test_the_memory_of_logical_cpus_is_that_of_this_process(chains: Chains, devices: harness.Devices) -> None:
    import psutil

    record = measure(chains.single, chains.parallel, devices)
    now = psutil.Process(os.getpid()).memory_info().rss
    for memory in record.memory:
        assert memory.peak_bytes is not None
        assert 0.2 * now < memory.peak_bytes < 5 * now
        assert memory.source == f"resident set of its process, which holds {len(devices)} of these devices"


@pytest.mark.devices(min=2)
def test_a_fast_wrong_program_is_no_speedup(chains: Chains, devices: harness.Devices) -> None:
    import tensorflow as tf

    wrong = tf.function(lambda: chains.matrices[0] * 1.0)
    with pytest.raises(harness.OutputsDiffer, match=r"^output: [\d,]+ of 2,304 elements differ"):
        measure(chains.single, wrong, devices)


@pytest.mark.devices(min=2)
def test_a_program_that_becomes_wrong_later_is_no_speedup_either(chains: Chains, devices: harness.Devices) -> None:
    calls = []

    def later_wrong() -> Any:
        calls.append(1)
        right = chains.parallel()
        return right if len(calls) < 10 else right + 1.0

    with pytest.raises(harness.OutputsDiffer, match="2,304 of 2,304 elements differ"):
        measure(chains.single, later_wrong, devices)


def test_two_programs_with_a_state_of_their_own_are_compared_once_in_step(devices: harness.Devices) -> None:
    """A training step changes what the next one returns: the first steps are compared."""
    import tensorflow as tf

    def step() -> Callable[[], Any]:
        with tf.device(devices[0].name):
            steps = tf.Variable(0.0)

        def fn() -> Any:
            with tf.device(devices[0].name):
                return steps.assign_add(1.0)

        compiled: Callable[[], Any] = tf.function(fn)
        return compiled

    assert measure(step(), step(), devices[:1]).single_ns


@pytest.mark.devices(min=2)
def test_a_function_that_is_traced_at_each_call_is_named(chains: Chains, devices: harness.Devices) -> None:
    """S02: a Python number makes a new graph each time; as a tensor it does not."""
    import tensorflow as tf

    scaled = tf.function(lambda by: chains.side_by_side() * by, reduce_retracing=False)
    numbers = iter(range(1, 10**6))

    def retraced() -> Any:
        return scaled(1.0 + 1e-9 * next(numbers))

    [said] = _about(measure(chains.single, retraced, devices), "traced")
    assert said.startswith("functions were traced ")
    one = tf.constant(1.0)
    assert not _about(measure(chains.single, lambda: scaled(one), devices), "traced")


@pytest.mark.devices(min=2)
def test_a_function_made_anew_in_each_call_is_named(chains: Chains, devices: harness.Devices) -> None:
    import tensorflow as tf

    said = _about(measure(chains.single, lambda: tf.function(chains.side_by_side)(), devices), "traced")
    assert len(said) == 1


@pytest.mark.devices(min=2)
def test_a_program_that_more_devices_make_slower_is_named(chains: Chains, devices: harness.Devices) -> None:
    """S01: handing the work to the devices takes longer than the work; the twin gains from them."""

    now_ns = 0

    def taking(milliseconds: int, program: Callable[[], Any]) -> Callable[[], Any]:
        def timed() -> Any:
            nonlocal now_ns
            now_ns += milliseconds * 10**6
            return program()

        return timed

    def warnings(single_ms: int, parallel_ms: int) -> list[str]:
        # A clock of its own: a pause of a busy machine is no part of these times.
        single, parallel = taking(single_ms, chains.single), taking(parallel_ms, chains.parallel)
        record = harness.measure_speedup(single, parallel, devices=devices, budget_s=0.02, clock=lambda: now_ns)
        return _about(record, "slower on")

    assert warnings(1, 2) == [f"slower on {len(devices)} devices than on one: speedup 0.50"]
    assert not warnings(2, 1)


@pytest.mark.devices(min=2)
def test_reading_a_value_between_the_shards_is_named(chains: Chains, devices: harness.Devices) -> None:
    """S04: the host waits for each shard before it starts the next one."""
    import tensorflow as tf

    def in_turn() -> Any:
        total = 0.0
        for device, matrix in zip(devices, chains.matrices, strict=True):
            with tf.device(device.name):
                total = total + chains.chain(matrix.read_value()).numpy()
        return tf.constant(total)

    record = measure(chains.single, in_turn, devices)
    [said] = _about(record, "reads a tensor")
    assert said.startswith(f"`parallel` reads a tensor {len(devices)} times per call in Python")


@pytest.mark.devices(min=2, kind="logical-cpu")
def test_one_thread_that_feeds_all_devices_op_by_op_is_named(chains: Chains, devices: harness.Devices) -> None:
    """S04: eager ops on CPUs run one by one."""
    [said] = _about(measure(chains.single, chains.side_by_side, devices), "one by one")
    assert said.startswith("`parallel` runs ops one by one outside a tf.function (")


@pytest.mark.devices(min=2)
def test_a_baseline_on_several_devices_is_named(chains: Chains, devices: harness.Devices) -> None:
    """S05."""
    [said] = _about(measure(chains.parallel, chains.parallel, devices), "`single` ran")
    assert said.startswith(f"`single` ran on {len(devices)} of the devices")


@pytest.mark.devices(min=2)
def test_a_parallel_side_that_leaves_devices_idle_is_named(chains: Chains, devices: harness.Devices) -> None:
    [said] = _about(measure(chains.single, chains.single, devices), "`parallel` ran")
    assert said.endswith(f": it uses only 1 of {len(devices)} devices")


@pytest.mark.devices(min=3, kind="logical-cpu")
def test_a_baseline_on_a_device_that_is_none_of_them_is_named(chains: Chains, devices: harness.Devices) -> None:
    """S05: the host is none of the devices here."""
    others = Chains(devices[1:])
    said = _about(measure(chains_on_the_host := _on_the_host(others), others.parallel, devices[1:]), "`single` ran")
    assert chains_on_the_host() is not None
    assert len(said) == 1
    assert said[0].startswith("`single` ran only on devices that are not in devices= (CPU:0: ")
    assert not _about(measure(others.single, others.parallel, devices[1:]), "`single` ran")


def _on_the_host(chains: Chains) -> Callable[[], Any]:
    import tensorflow as tf

    def fn() -> Any:
        with tf.device("/CPU:0"):
            return tf.add_n([chains.chain(tf.identity(matrix)) for matrix in chains.matrices])

    compiled: Callable[[], Any] = tf.function(fn)
    return compiled


@pytest.mark.devices(min=3, kind="logical-cpu")
def test_host_copies_in_each_call_are_named(devices: harness.Devices) -> None:
    """S05: 256 KiB go from the host to each device in each call, where they could stay."""
    import tensorflow as tf

    two = devices[1:3]
    with tf.device("/CPU:0"):
        on_host = [tf.Variable(tf.ones([256, 256])) for _ in two]
    there = []
    for device in two:
        with tf.device(device.name):
            there.append(tf.Variable(tf.ones([256, 256])))

    def squares(held: list[Any], places: harness.Devices | list[harness.Device]) -> Callable[[], Any]:
        def fn() -> Any:
            results = []
            for device, matrix in zip(places, held, strict=True):
                with tf.device(device.name):
                    value = matrix.read_value()
                    results.append(tf.reduce_sum(tf.matmul(value, value)))
            return results

        compiled: Callable[[], Any] = tf.function(fn)
        return compiled

    with tf.device(two[0].name):
        serial = [tf.Variable(tf.ones([256, 256])) for _ in two]
    single = squares(serial, [two[0], two[0]])
    [said] = _about(measure(single, squares(on_host, two), two), "host")
    assert said.startswith("each call of `parallel` copies 0.5 MB between the host and the devices (2 copies)")
    assert not _about(measure(single, squares(there, two), two), "host")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"single": 3}, "single=3 is not callable"),
        ({"parallel": None}, "parallel=None is not callable"),
        ({"devices": []}, "devices=.. is empty"),
        ({"budget_s": 0.0}, "budget_s=0.0; accepted: a number above 0 and below"),
        ({"half_width": 1.0}, "half_width=1.0; accepted"),
        ({"confidence": 1.5}, "confidence=1.5; accepted"),
    ],
)
def test_arguments_that_are_not_usable_are_refused(devices: harness.Devices, wrong: dict[str, Any], why: str) -> None:
    def program() -> Any:
        raise AssertionError("it is refused before anything is called")

    given: dict[str, Any] = {"single": program, "parallel": program, "devices": devices, **wrong}
    with pytest.raises(harness.UsageError, match=why):
        harness.measure_speedup(given.pop("single"), given.pop("parallel"), **given)


def test_the_garbage_collector_runs_between_pairs_alone() -> None:
    assert gc.isenabled()
    with quiet() as collect:
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
        collect()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_second_measurement_of_programs_that_keep_a_state_compares_nothing_again(
    devices: harness.Devices,
) -> None:
    """A training step that was called once more on one side is further on there; what keeps no state is compared."""
    import tensorflow as tf

    from harness.speed.measure import measure_pairs

    def counter(start: float) -> Callable[[], Any]:
        count = tf.Variable(start)
        return lambda: count.assign_add(1.0)

    options: dict[str, Any] = {"devices": devices[:1], "budget_s": 0.05, "half_width": 0.5}
    with pytest.raises(harness.OutputsDiffer):
        measure_pairs(counter(0.0), counter(1.0), **options)
    assert measure_pairs(counter(0.0), counter(1.0), **options, compared=True).samples.single_ns
    one, other = tf.constant(1.0), tf.constant(2.0)
    with pytest.raises(harness.OutputsDiffer):
        measure_pairs(lambda: one + 0.0, lambda: other + 0.0, **options, compared=True)
