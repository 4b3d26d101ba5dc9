"""Threads that run eager ops on one GPU at once: TensorFlow mixes up arguments in host memory (tensorflow 123980)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, Verification, verify
from harness.evidence import handing

ROWS = np.random.default_rng(3).normal(size=(8, 3)).astype(np.float32)


def widened(part: Any) -> Any:
    """Ops that read shapes in host memory."""
    for width in (2, 3, 4):
        part = tf.broadcast_to(tf.reshape(part, [-1, 3, 1]), [tf.shape(part)[0], 3, width])[:, :, 0] + 1.0
    return part


def checked(
    program: Callable[..., Any], devices: Devices, reference: Callable[..., Any] = widened, **options: Any
) -> Verification:
    return verify(
        program, lambda x: reference(x), {"x": ROWS}, devices=devices, modes=("eager",), gradients=False, **options
    )


def flat(part: Any) -> Any:
    """Ends with an op whose arguments TensorFlow has to convert, and whose callback it calls late."""
    return tf.reshape(tf.tanh(part), [tf.shape(part)[0], 3])


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are held until another one comes, however busy the machine is."""
    monkeypatch.setattr(handing, "_HOLD_S", 30.0)


def in_threads(work: Callable[[int, Any], Any], devices: Devices) -> Callable[..., Any]:
    """``work`` of each shard in a thread of its own, all of them at once."""

    def program(x: Any) -> Any:
        meeting = threading.Barrier(len(devices))

        def met(number: int, part: Any) -> Any:
            meeting.wait(timeout=120)
            return work(number, part)

        with ThreadPoolExecutor(len(devices)) as pool:
            return tf.concat(list(pool.map(met, range(len(devices)), tf.split(x, len(devices)))), axis=0)

    return program


pytestmark = pytest.mark.devices(min=2, kind=["gpu", "logical-cpu"])


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("function", [widened, flat])
def test_threads_on_one_gpu_are_found_and_on_logical_cpus_nothing_is_wrong_with_them(
    function: Callable[..., Any], devices: Devices
) -> None:
    def work(number: int, part: Any) -> Any:
        with tf.device(devices[number].name) if number > 1 else nullcontext():
            return function(part)

    found = checked(in_threads(work, devices), devices, function)
    kinds = {finding.kind for finding in found.findings}
    if all(device.parsed.kind == "CPU" for device in devices):
        assert "shared-gpu" not in kinds, found
        return
    assert "shared-gpu" in kinds, found
    assert found.verdict is Verdict.FAIL, found
    first = found.reason.splitlines()[0]
    assert first.startswith("Threads ran eager ops on GPU:0 at the same time (tests/judgement/test_threads"), found
    assert "give each thread a GPU of its own, or call a tf.function" in first, found


def of_its_own(devices: Devices) -> Callable[..., Any]:
    def work(number: int, part: Any) -> Any:
        with tf.device(devices[number].name):
            return widened(part)

    return in_threads(work, devices)


def of_its_own_without_a_scope_after(devices: Devices) -> Callable[..., Any]:
    def work(number: int, part: Any) -> Any:
        with tf.device(devices[number].name):
            return flat(part)

    joined = in_threads(work, devices)
    return lambda x: widened(joined(x))


def of_a_function(devices: Devices) -> Callable[..., Any]:
    compiled = tf.function(widened, input_signature=[tf.TensorSpec([None, 3])])

    def work(number: int, part: Any) -> Any:
        return compiled(part)

    return in_threads(work, devices)


def with_a_lock(devices: Devices) -> Callable[..., Any]:
    one_at_a_time = threading.Lock()

    def work(number: int, part: Any) -> Any:
        with one_at_a_time:
            return widened(part)

    return in_threads(work, devices)


def one_after_the_other(devices: Devices) -> Callable[..., Any]:
    def program(x: Any) -> Any:
        results: list[Any] = []
        for part in tf.split(x, len(devices)):
            thread = threading.Thread(target=lambda part=part: results.append(widened(part)))
            thread.start()
            thread.join()
        return tf.concat(results, axis=0)

    return program


@pytest.mark.parametrize(
    "clean", [of_its_own, of_its_own_without_a_scope_after, of_a_function, with_a_lock, one_after_the_other]
)
def test_threads_that_are_not_mixed_up_are_not_accused(
    clean: Callable[[Devices], Callable[..., Any]], devices: Devices
) -> None:
    late = clean is of_its_own_without_a_scope_after
    found = checked(clean(devices), devices, (lambda x: widened(flat(x))) if late else widened)
    assert {finding.kind for finding in found.findings} <= {"unused-device"}, found
    assert found.exercised.values, found


def test_a_program_that_fails_in_its_second_run_is_told_why_it_may(devices: Devices) -> None:
    calls: list[int] = []
    taken_in_turn = with_a_lock(devices)

    def program(x: Any) -> Any:
        calls.append(1)
        y = taken_in_turn(x)
        if len(calls) == 2:
            raise tf.errors.InvalidArgumentError(None, None, "Incompatible shapes: [4,1] vs. [3,5]")
        return y

    found = checked(program, devices)
    [error] = [finding for finding in found.findings if finding.kind == "error"]
    assert error.where == "a second run of the parallel program", found
    on_gpus = all(device.parsed.kind == "GPU" for device in devices)
    assert ("give each thread a GPU of its own" in error.message) is on_gpus, found


@pytest.mark.usefixtures("patient")
def test_a_program_whose_threads_may_be_mixed_up_is_not_run_again(devices: Devices) -> None:
    calls: list[int] = []
    shared = in_threads(lambda _, part: widened(part), devices)

    def program(x: Any) -> Any:
        calls.append(1)
        return shared(x)

    found = checked(program, devices)
    assert found.verdict is Verdict.FAIL, found
    accepted = checked(shared, devices, accept=[("shared-gpu", "known"), ("unused-device", "known")])
    on_gpus = all(device.parsed.kind == "GPU" for device in devices)
    assert (len(calls) == 1) is on_gpus, calls
    # What was not compared is not proven.
    assert accepted.verdict is (Verdict.UNKNOWN if on_gpus else Verdict.WARN), accepted
    assert ("values were not compared" in accepted.reason) is on_gpus
