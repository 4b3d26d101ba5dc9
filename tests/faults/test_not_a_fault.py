"""What a simple rule would take for a fault: that it would, and that verifying does not."""

from __future__ import annotations

from typing import Any

import numpy as np

import harness
from harness.faults.catalogue import FAULTS
from harness.faults.samples import sample
from harness.judgement.runs import soft_placement

pytest_plugins = ["four_devices"]


def test_the_device_of_a_result_says_the_host_for_all_devices_and_the_trace_says_where_it_was(
    four_cpus: harness.Devices,
) -> None:
    case = FAULTS["P03-device-of-a-result"].plant(four_cpus)
    trace = harness.trace(case.twin, **case.inputs)
    assert {result.device for result in trace.outputs} == {four_cpus[0].name}
    assert {str(op.device) for op in trace.ops if op.type == "Tanh"} == set(four_cpus.names)


def test_a_result_handed_through_a_scope_names_its_device_and_the_trace_says_where_it_was_made(
    four_cpus: harness.Devices,
) -> None:
    case = FAULTS["P03-device-of-a-result"].plant(four_cpus)
    trace = harness.trace(case.parallel, **case.inputs)
    assert [result.device for result in trace.outputs] == list(four_cpus.names)
    assert {str(op.device) for op in trace.ops if op.type == "Tanh"} == {four_cpus[0].name}


def test_texts_and_shapes_are_backed_by_the_host_in_every_scope(four_cpus: harness.Devices) -> None:
    """So are integers of 32 bits where the device is a GPU."""
    import tensorflow as tf

    # No GPU has a place for texts.
    with soft_placement(), tf.device(four_cpus[2].name):
        on_the_host = [tf.strings.as_string([1.0]), tf.shape(tf.ones([2, 3])), tf.size(tf.ones([2, 3]))]
    assert {tensor.backing_device for tensor in on_the_host} == {four_cpus.host}
    assert FAULTS["P04-host-tensors"].plant(four_cpus).judge(four_cpus, faulty=False).passed


def test_another_order_of_summation_gives_other_bits(four_cpus: harness.Devices) -> None:
    """The twins of V21 would fail a bitwise comparison, so that their passing says something."""
    differing = 0
    for name in ("V21-long-sum", "V21-large-numbers", "V21-float16", "V21-float64"):
        case = FAULTS[name].plant(four_cpus)
        ours, theirs = (np.asarray(fn(**case.inputs)) for fn in (case.twin, case.reference))
        differing += not np.array_equal(ours, theirs)
        bitwise = harness.verify(case.twin, case.reference, case.inputs, devices=four_cpus, exact=True)
        assert bitwise.passed == np.array_equal(ours, theirs)
    assert differing >= 2


def test_randomness_that_both_programs_leave_unseeded_proves_nothing(
    four_cpus: harness.Devices,
) -> None:
    import tensorflow as tf

    def reference(x: Any) -> Any:
        return tf.nn.dropout(x, 0.5)

    def parallel(x: Any) -> Any:
        outputs = []
        for device, part in zip(four_cpus, tf.split(x, 4), strict=True):
            with tf.device(device.name):
                outputs.append(reference(part))
        return tf.concat(outputs, axis=0)

    verification = harness.verify(parallel, reference, {"x": sample(8, 5)}, devices=four_cpus)
    assert verification.verdict is harness.Verdict.UNKNOWN, verification
    assert "RandomUniform (tests/faults/test_not_a_fault.py:" in verification.reason
