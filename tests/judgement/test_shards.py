"""Work belongs on the device of the shard whose rows it is done on, whatever scope it asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import clean_joins
import clean_models
import clean_rings
import clean_shards
import misplaced_models
import misplaced_programs
import misplaced_steps
import pytest
import steps_at_neighbours
import steps_that_change_places
import tensorflow as tf
import visiting_parts
from shard_programs import Program

import harness
from harness.faults.samples import sample, shares
from harness.records import Verdict

pytestmark = pytest.mark.devices(min=4)
#: An error in the scope of a GPU: Python functions, and the loop that computes a Jacobian.
NO_GPU_KERNEL = pytest.mark.devices(kind="logical-cpu")
PLAIN_PYTHON = ("numpy_function", "numpy_function_with_texts")
_FILES = (
    misplaced_programs,
    misplaced_models,
    visiting_parts,
    misplaced_steps,
    steps_at_neighbours,
    steps_that_change_places,
)
PAIRS = {name: make for each in _FILES for name, make in each.PAIRS.items()}


def _on_cpus_alone(value: Any, *alone: object) -> Any:
    return pytest.param(value, marks=NO_GPU_KERNEL) if value in alone else value


def _verify(program: Program, devices: harness.Devices) -> harness.Verification:
    used = devices[: program.devices]
    return harness.verify(
        program.parallel, program.reference, program.inputs, devices=used, modes=program.modes, gradients=False
    )


@pytest.mark.cases(4, "all_blocks_but_one", "batches_of_a_dataset", "scored_after_the_scope")
@pytest.mark.parametrize(
    "name", [_on_cpus_alone(name, "numpy_function", "numpy_function_with_texts") for name in PAIRS]
)
def test_work_on_another_shards_device_is_found_and_the_clean_twin_passes(name: str, devices: harness.Devices) -> None:
    program = PAIRS[name](devices, True)
    found = _verify(program, devices)
    for mode in program.modes:
        kinds = {finding.kind for finding in found.findings if mode in finding.mode.split(", ")}
        # The gradients of a forward op that is out of place are taken in the shard's scope.
        assert kinds in ({"op-placement"}, {"op-placement", "gradient-placement"}), (mode, found)
    clean = _verify(PAIRS[name](devices, False), devices)
    assert clean.findings == ()
    assert clean.verdict is Verdict.PASS, clean


@pytest.mark.cases(4, "cells_looked_at_by_python", "small_lookup_before_much_work")
@pytest.mark.parametrize(
    "make",
    [
        _on_cpus_alone(make, clean_shards.jacobian_of_each_row, steps_at_neighbours.rows_prepared_in_numpy)
        for make in (
            *clean_joins.CLEAN,
            *clean_rings.CLEAN,
            *clean_shards.CLEAN,
            *clean_models.CLEAN,
            *misplaced_steps.CLEAN,
            *steps_at_neighbours.CLEAN,
            *steps_that_change_places.CLEAN,
        )
    ],
)
def test_a_right_program_passes(make: Callable[[harness.Devices], Program], devices: harness.Devices) -> None:
    clean = _verify(make(devices), devices)
    assert clean.findings == (), clean
    assert clean.verdict is Verdict.PASS, clean


@pytest.mark.cases(1)
@pytest.mark.parametrize("make", [misplaced_programs.heavy_without_a_scope, misplaced_models.branches_joined])
def test_what_is_out_of_place_is_found_beside_gradients(
    devices: harness.Devices, make: Callable[[harness.Devices, bool], Program]
) -> None:
    for wrong, kinds in ((True, {"op-placement"}), (False, set())):
        program = make(devices, wrong)
        parallel = harness.colocate_gradients(program.parallel)
        used = devices[: program.devices]
        found = harness.verify(parallel, program.reference, program.inputs, devices=used, gradients=True)
        assert {finding.kind for finding in found.findings} == kinds, found


@NO_GPU_KERNEL
def test_a_jacobian_that_is_taken_outside_of_the_scopes_is_found(devices: harness.Devices) -> None:
    weights = tf.Variable(sample(6, 5))

    def outside(x: tf.Tensor) -> tf.Tensor:
        rows = []
        for device, part in zip(devices, tf.split(x, shares(10, len(devices))), strict=True):
            with tf.GradientTape() as tape:
                tape.watch(part)
                with tf.device(device.name):
                    y = tf.tanh(tf.matmul(part, weights))
            rows.append(tape.batch_jacobian(y, part))
        return tf.concat(rows, 0)

    reference = clean_shards.jacobian_of_each_row(devices).reference
    found = harness.verify(outside, reference, {"x": sample(10, 6)}, devices=devices)
    assert {(finding.kind, finding.mode) for finding in found.findings} <= {
        ("gradient-placement", "graph"),
        ("gradient-placement", "eager, graph"),
    }, found
    assert found.findings
