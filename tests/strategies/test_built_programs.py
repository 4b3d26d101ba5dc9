"""Generated programs in TensorFlow, on one device: do they run, are they row-wise, and are exact ones exact?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from harness.strategies import FLOATS, Argument, Dense, Gain, Program, Variable, programs, sample
from harness.strategies.build import Built
from harness.strategies.definition import gradient_bounds
from harness.strategies.parts import leaf_at

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: More than the last place by which a row alone may differ from the same row in a batch: other kernels, other sums.
FEW_ULPS = 16


def leaves(program: Program, outputs: Any) -> dict[str, NDArray[Any]]:
    return {path: leaf_at(outputs, path).numpy() for path, _ in program.outputs}


def rows_of(program: Program, inputs: dict[str, Any], chosen: list[int]) -> dict[str, Any]:
    """The inputs with the chosen rows alone, cut out by NumPy."""
    arrays = {}
    for argument in program.arguments:
        array = leaf_at(inputs, argument.name)
        arrays[argument.name] = array if argument.broadcast else np.take(array, chosen, axis=program.axis)
    return program.pack_arguments(arrays)


def gradients(built: Built, inputs: dict[str, Any], weights: dict[str, NDArray[Any]] | None = None) -> list[Any]:
    """Gradients of the sum of the weighted outputs, for the floating inputs and then for the variables."""
    tensors = tf.nest.map_structure(tf.convert_to_tensor, inputs)
    sources = [leaf for leaf in tf.nest.flatten(tensors) if leaf.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        outputs = built.fn(**tensors)
    paths = [path for path, name in built.program.outputs if built.program.types[name].dtype == built.program.dtype]
    targets = [leaf_at(outputs, path) for path in paths]
    seeds = [tf.ones_like(t) if weights is None else weights[p] for p, t in zip(paths, targets, strict=True)]
    found = tape.gradient(targets, [*sources, *built.variables], output_gradients=seeds)
    return [None if gradient is None else tf.convert_to_tensor(gradient).numpy() for gradient in found]


def assert_row_wise(program: Program) -> None:
    built, inputs = program.build(), program.inputs()
    whole = leaves(program, built.fn(**inputs))
    for row in range(program.rows):
        alone = leaves(program, built.fn(**rows_of(program, inputs, [row])))
        for path, name in program.outputs:
            expected = np.take(whole[path], [row], axis=program.axis)
            assert alone[path].shape == expected.shape
            if program.exact or program.types[name].dtype not in EPSILON:
                assert (alone[path] == expected).all(), (path, program)
            else:
                error = np.abs(alone[path].astype(float) - expected.astype(float))
                allowed = FEW_ULPS * EPSILON[program.dtype] * max(1.0, np.abs(expected.astype(float)).max(initial=0))
                assert (error <= allowed).all(), (path, error.max(), program)


def test_generated_programs_run_eagerly_and_in_a_graph_that_does_not_know_the_batch() -> None:
    for program in sample(programs(exact=None, traced=None), 40, seed=8):
        built, inputs = program.build(), program.inputs()
        outputs = leaves(program, built.fn(**inputs))
        graph = tf.function(
            lambda inputs, fn=built.fn: fn(**inputs), input_signature=[built.signature], autograph=False
        )
        unknown = tf.nest.flatten(graph.get_concrete_function().structured_outputs)
        assert all(spec.shape[program.axis] is None for spec in unknown), program
        from_graph = leaves(program, graph(inputs))
        for path, name in program.outputs:
            value = program.types[name]
            shape = list(value.shape)
            shape.insert(program.axis, program.rows)
            assert list(outputs[path].shape) == shape, (path, program)
            assert outputs[path].dtype.name == value.dtype
            assert np.abs(outputs[path].astype(float)).max(initial=0) <= 1.01 * value.bound, (path, program)
            scale = max(1.0, np.abs(outputs[path].astype(float)).max(initial=0))
            error = np.abs(outputs[path].astype(float) - from_graph[path].astype(float)).max(initial=0)
            assert error <= 64 * EPSILON.get(value.dtype, 0) * scale, (path, program)
        for gradient in gradients(built, inputs):
            assert gradient is None or np.isfinite(gradient.astype(float)).all(), program


def test_each_row_of_the_result_follows_from_its_own_row_alone() -> None:
    for program in sample(programs(exact=None, min_rows=2, max_rows=7), 40, seed=9):
        assert_row_wise(program)


def test_the_row_wise_test_finds_a_function_that_mixes_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(
        (Argument("x", (3,)),), (Variable("w0", (3,), "gain"),), (Gain("x", "w0"),), (("", "v0"),), rows=4
    )
    assert_row_wise(program)
    monkeypatch.setattr(Gain, "apply", lambda self, values: values["x"] - tf.reduce_mean(values["x"], axis=0))
    with pytest.raises(AssertionError):
        assert_row_wise(program)


def test_exact_programs_give_in_their_type_what_float64_gives() -> None:
    random = np.random.default_rng(0)
    compared = 0
    for program in sample(programs(exact=True, dtypes=("bfloat16", "float16", "float32"), min_rows=2), 40, seed=10):
        wide = replace(program, dtype="float64")
        built, built_wide = program.build(), wide.build()
        inputs = program.inputs()
        inputs_wide = tf.nest.map_structure(
            lambda array, kind=program.dtype: array.astype(np.float64) if array.dtype.name == kind else array, inputs
        )
        for variable, variable_wide in zip(built.variables, built_wide.variables, strict=True):
            variable_wide.assign(tf.cast(variable, tf.float64))
        outputs, outputs_wide = leaves(program, built.fn(**inputs)), leaves(wide, built_wide.fn(**inputs_wide))
        weights = {}
        for path, output in outputs.items():
            assert (output.astype(float) == outputs_wide[path].astype(float)).all(), (path, program)
            weights[path] = random.choice([-2.0, -1.0, 1.0, 2.0], output.shape).astype(output.dtype)
        known = gradient_bounds(program.types, program.steps, [name for _, name in program.outputs], program.rows)
        found = gradients(built, inputs, weights)
        expected = gradients(built_wide, inputs_wide, {path: w.astype(np.float64) for path, w in weights.items()})
        for one, other in zip(found, expected, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                compared += one.size
                assert (one.astype(float) == other).all(), program
        for variable, gradient in zip(program.variables, found[len(found) - len(program.variables) :], strict=True):
            assert gradient is None or np.abs(gradient.astype(float)).max(initial=0) <= known[variable.name]
    assert compared > 1000


def test_gradients_of_the_parts_of_an_exact_batch_add_up_to_the_last_bit() -> None:
    for program in sample(programs(exact=True, dtypes=FLOATS, min_rows=5), 15, seed=11):
        built, inputs = program.build(), program.inputs()
        if not built.variables:
            continue
        order = [*range(0, program.rows, 2), *range(1, program.rows, 2)]
        parts = [gradients(built, rows_of(program, inputs, [row])) for row in order]
        whole = gradients(built, inputs)
        count = len(built.variables)
        for index in range(len(whole) - count, len(whole)):
            if whole[index] is not None:
                total = sum(part[index] for part in parts[1:] if part[index] is not None) + parts[0][index]
                assert (total == whole[index]).all(), program


def test_rounding_is_seen_where_a_program_is_not_exact() -> None:
    # The clean twin of the two tests above: the same comparison of types differs for ordinary numbers.
    program = Program(
        (Argument("x", (5,)),), (Variable("w0", (5, 3)),), (Dense("x", "w0"),), (("", "v0"),), dtype="bfloat16", rows=6
    )
    built, wide = program.build(), replace(program, dtype="float64").build()
    wide.variables[0].assign(tf.cast(built.variables[0], tf.float64))
    inputs = program.inputs()
    narrow_result = built.fn(**inputs).numpy().astype(float)
    assert (narrow_result != wide.fn(x=inputs["x"].astype(np.float64)).numpy()).any()


def test_variables_are_made_once_on_the_host_and_shared() -> None:
    program = Program(
        (Argument("x", (3,)),), (Variable("w0", (3, 2)),), (Dense("x", "w0"),), (("", "v0"),), rows=4, axis=1
    )
    built = program.build()
    (variable,) = built.variables
    assert variable.name == "w0:0"
    assert variable.device.endswith("CPU:0")
    before = built.fn(**program.inputs())
    variable.assign(2 * variable)
    assert np.allclose(built.fn(**program.inputs()), 2 * before)
    assert not replace(program, dtype="int64").build().variables[0].trainable


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_batch_axis_of_arguments_and_outputs_is_the_programs(axis: int) -> None:
    program = Program(
        (Argument("x", (2, 3)),), (Variable("w0", (3, 4)),), (Dense("x", "w0"),), (("a", "v0"),), rows=5, axis=axis
    )
    built, inputs = program.build(), program.inputs()
    result = built.fn(**inputs)["a"].numpy()
    batch_first = np.moveaxis(inputs["x"], axis, 0) @ built.variables[0].numpy()
    assert np.allclose(result, np.moveaxis(batch_first, 0, axis), atol=1e-6)
    assert built.signature["x"].shape.as_list() == {0: [None, 2, 3], 1: [2, None, 3], -1: [2, 3, None]}[axis]


def test_a_traced_program_is_one_graph_for_every_size_of_batch() -> None:
    program = Program(
        (Argument("x", (3,)),), (Variable("w0", (3, 2)),), (Dense("x", "w0"),), (("", "v0"),), rows=4, traced=True
    )
    plain = replace(program, traced=False)
    for rows in (0, 1, 4, 9):
        inputs = program.inputs(rows)
        assert np.allclose(program.build().fn(**inputs), plain.build().fn(**inputs))
    types = [
        op.type
        for op in tf.function(program.build().fn).get_concrete_function(x=tf.zeros([4, 3])).graph.get_operations()
    ]
    assert "StatefulPartitionedCall" in types
    assert "MatMul" not in types
