"""Each device does a share of the common work, on the parts and the variables that are its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from idle_programs import PAIRS
from shard_programs import Program, layers

import harness
from harness.faults.samples import sample
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=4)


def _verify(program: Program, devices: harness.Devices, *modes: str) -> harness.Verification:
    used = devices[:4]
    return harness.verify(
        program.parallel, program.reference, program.inputs, devices=used, modes=modes or program.modes, gradients=False
    )


@pytest.mark.cases(6, "folded_scope", "teacher_outside", "clients_updated_by_the_next", "a_stage_elsewhere")
@pytest.mark.parametrize("name", PAIRS)
def test_work_that_is_not_where_it_should_be_is_found_and_the_clean_twin_passes(
    name: str, devices: harness.Devices
) -> None:
    make, kind = PAIRS[name]
    program = make(devices, True)
    for mode in program.modes:
        found = _verify(program, devices, mode)
        kinds = {finding.kind for finding in found.findings}
        # Where the work was done instead is said in the place of the idle devices, if the trace shows it.
        assert kind in kinds or (kinds == {"op-placement"} and kind == "unused-device"), (mode, found)
    clean = _verify(make(devices, False), devices)
    assert clean.verdict is Verdict.PASS, clean


def test_work_on_a_device_that_is_not_asked_for_is_found_without_a_scope_too(devices: harness.Devices) -> None:
    """On logical CPUs the first device is the host, where a loss may be: so the work is on the second, in its scope."""
    on_gpu = devices[0].parsed.kind == "GPU"
    used, other = (devices[1:], None) if on_gpu else (harness.configure(devices.spec)[2:], devices[1].name)
    first, _, both = layers()

    def program(x: Any, scope: str | None) -> Any:
        found = []
        for device, part in zip(used, tf.split(x, len(used)), strict=True):
            with tf.device(device.name):
                found.append(first(part))
        with tf.device(scope):
            return both(tf.concat(found, 0))

    inputs = {"x": sample(4 * len(used), 6)}
    for scope, expected in ((other, Verdict.FAIL), (used[0].name, Verdict.PASS), (devices.host, Verdict.PASS)):
        found = harness.verify(
            lambda x, scope=scope: program(x, scope),
            lambda x: both(first(x)),
            inputs,
            devices=used,
            modes=("graph",),
            gradients=False,
        )
        assert found.verdict is expected, found
        assert "strategy" not in found.reason


def test_what_nobody_can_place_is_no_finding(devices: harness.Devices) -> None:
    """TensorFlow puts an assertion beside its argument, and of a square whose gradient is taken it leaves nothing."""

    def finite(x: Any) -> Any:
        return tf.debugging.assert_all_finite(x, "no") * 2.0

    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            square = x * x
        return tape.gradient(square, x)

    for fn in (finite, slope):
        parallel = harness.make_parallel(fn, devices[:2])
        found = harness.verify(parallel, fn, {"x": sample(8, 6)}, devices=devices[:2], gradients=False)
        assert found.verdict is Verdict.PASS, found


def test_rows_that_are_picked_from_an_argument_are_no_work_of_python(devices: harness.Devices) -> None:
    """Integers are on the host, and what else is split is not read: only the table tells that no NumPy is at work."""

    def model(x: Any, index: Any, table: Any) -> Any:
        return tf.gather(table, index)

    inputs = {"x": np.ones((4, 3), np.float32), "index": np.array([0, 1, 1, 0], np.int32), "table": np.eye(2) + 0.5}
    parallel = harness.make_parallel(model, devices[:2], broadcast=("table",))
    found = harness.verify(parallel, model, inputs, devices=devices[:2])
    assert found.verdict is Verdict.PASS, str(found)
