from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from itertools import chain
from typing import Any

import pytest

from harness import strategies
from harness.errors import UsageError
from harness.strategies import (
    FLOATS,
    KINDS,
    Activation,
    Combine,
    Dense,
    Program,
    Select,
    explore,
    programs,
    sample,
)
from harness.strategies.recipes import FLOAT_KINDS, UNPLACEABLE_WHEN_TRACED

NAMES = vars(strategies)


@pytest.fixture(scope="module")
def drawn() -> list[Program]:
    return sample(programs(exact=None, axes=(0, 0, 0, 1), traced=None), 300, seed=20)


def nest_of(paths: list[str]) -> str:
    if paths == [""]:
        return "single"
    heads = {path.partition(".")[0] for path in paths}
    deep = "nested " if any("." in path for path in paths) else ""
    return deep + ("tuple" if all(head.isdecimal() for head in heads) else "dict")


def test_every_kind_of_step_occurs(drawn: list[Program]) -> None:
    counts = Counter(chain.from_iterable(set(program.kinds) for program in drawn))
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 3, counts


def test_every_type_size_of_batch_axis_and_length_occurs(drawn: list[Program]) -> None:
    dtypes = Counter(program.dtype for program in drawn)
    assert set(dtypes) == {*FLOATS, "int64"}
    assert min(dtypes.values()) >= 15, dtypes
    rows = Counter(program.rows for program in drawn)
    assert set(rows) == set(range(14))
    for devices in (2, 3, 4, 8):
        uneven = sum(count for size, count in rows.items() if size % devices)
        fewer = sum(count for size, count in rows.items() if 0 < size < devices)
        assert uneven >= 100
        assert fewer >= 10
    axes = Counter(program.axis for program in drawn)
    assert axes[0] > axes[1] >= 30
    assert set(Counter(len(program.steps) for program in drawn)) >= {1, 2, 3, 4, 5}


def test_every_form_of_arguments_outputs_and_sharing_occurs(drawn: list[Program]) -> None:
    outputs = Counter(nest_of([path for path, _ in program.outputs]) for program in drawn)
    assert min(outputs[form] for form in ("single", "tuple", "dict", "nested tuple", "nested dict")) >= 10, outputs
    inputs = Counter(type(value).__name__ for program in drawn for value in program.inputs().values())
    assert min(inputs[form] for form in ("ndarray", "tuple", "dict")) >= 10, inputs
    reads = [Counter(name for step in program.steps for name in step.reads) for program in drawn]
    forms = {
        "several arguments": sum(len(program.arguments) > 1 for program in drawn),
        "several outputs": sum(len(program.outputs) > 1 for program in drawn),
        "broadcast": sum(bool(program.broadcast) for program in drawn),
        "indices": sum(any(argument.below for argument in program.arguments) for program in drawn),
        "a mask": sum(any(argument.dtype == "bool" for argument in program.arguments) for program in drawn),
        "an integer output": sum(
            program.differentiable and any(program.types[name].dtype.startswith("int") for _, name in program.outputs)
            for program in drawn
        ),
        "a shared variable": sum(
            any(read[variable.name] > 1 for variable in program.variables)
            for program, read in zip(drawn, reads, strict=True)
        ),
        "what nothing reads": sum(
            not {*(argument.name for argument in program.arguments), *(variable.name for variable in program.variables)}
            <= {*read, *(name for _, name in program.outputs)}
            for program, read in zip(drawn, reads, strict=True)
        ),
        "an argument returned as it came": sum(
            any(name == argument.name for _, name in program.outputs for argument in program.arguments)
            for program in drawn
        ),
        "exact": sum(program.exact for program in drawn),
        "inexact": sum(not program.exact for program in drawn),
        "traced": sum(program.traced for program in drawn),
    }
    assert min(forms.values()) >= 8, forms


def test_variants_of_steps_all_occur() -> None:
    many = sample(programs(dtypes=("float32",)), 400, seed=3)
    steps = list(chain.from_iterable(program.steps for program in many))

    def seen(field: str) -> dict[str, set[Any]]:
        found: dict[str, set[Any]] = {}
        for step in steps:
            if hasattr(step, field):
                found.setdefault(step.KIND, set()).add(getattr(step, field))
        return found

    how = seen("how")
    assert how["combine"] == {"add", "sub", "mul", "maximum", "concat", "stack"}
    assert how["reduce"] == {"sum", "mean", "max", "logsumexp"}
    assert how["normalise"] == {"layer", "rms", "length"}
    assert how["pool"] == {"max", "avg"}
    assert how["loop"] == {"python", "while", "rows"}
    assert seen("on")["branch"] == {"variable", "rows", "static"}
    assert seen("padding") == {"conv1d": {"SAME", "VALID"}, "conv2d": {"SAME", "VALID"}}
    assert seen("stride") == {"conv1d": {1, 2}, "conv2d": {1, 2}}
    assert len(seen("fn")["activation"]) == 12
    assert {step.transposed for step in steps if isinstance(step, Dense)} == {True, False}
    assert {step.y is None for step in steps if isinstance(step, Select)} == {True, False}
    assert len(seen("equation")["einsum"]) >= 8


def test_no_value_is_square_and_a_row_stays_small(drawn: list[Program]) -> None:
    for program in drawn:
        for name, value in program.types.items():
            if value.batched:
                sizes = (program.rows, *value.shape)
                assert len(set(sizes)) == len(sizes), (name, program)
                assert value.size <= 96, (name, program)


def test_every_program_does_some_arithmetic(drawn: list[Program]) -> None:
    for program in drawn:
        computing = [step for step in program.steps if step.COMPUTES]
        assert any(not isinstance(step, Combine) or step.how not in ("concat", "stack") for step in computing), program


def test_a_program_prints_itself_as_python_that_makes_it_again(drawn: list[Program]) -> None:
    for program in drawn:
        assert eval(repr(program), dict(NAMES)) == program
        assert pickle.loads(pickle.dumps(program)) == program
        assert hash(program) == hash(dataclasses.replace(program))
    lengths = sorted(len(repr(program)) for program in drawn)
    assert lengths[len(lengths) // 2] < 400


def test_nearly_all_programs_of_a_sample_differ(drawn: list[Program]) -> None:
    assert len({(program.arguments, program.steps) for program in drawn}) > 280


def test_exact_programs_have_exact_steps_alone_and_others_have_all() -> None:
    exact = sample(programs(exact=True, dtypes=FLOATS), 80, seed=6)
    assert all(program.exact for program in exact)
    assert not {kind for program in exact for kind in program.kinds} & set(FLOAT_KINDS)
    other = sample(programs(exact=False, dtypes=FLOATS), 80, seed=6)
    assert {kind for program in other for kind in program.kinds} >= set(FLOAT_KINDS)


def test_programs_keep_to_the_options() -> None:
    options: dict[str, Any] = {
        "dtypes": ("float64",),
        "kinds": ("activation", "dense"),
        "axes": (1,),
        "max_steps": 2,
        "min_rows": 3,
        "max_rows": 5,
    }
    some = sample(programs(**options), 60, seed=2)
    assert {program.dtype for program in some} == {"float64"}
    assert {kind for program in some for kind in program.kinds} == {"activation", "dense"}
    assert {program.axis for program in some} == {1}
    assert {program.rows for program in some} == {3, 4, 5}
    assert max(len(program.steps) for program in some) <= 2 + 1


def test_a_program_is_traced_on_request_unless_tensorflow_could_not_place_it() -> None:
    for program in sample(programs(traced=True), 100, seed=7):
        assert program.traced == (not set(program.kinds) & set(UNPLACEABLE_WHEN_TRACED))
    assert not any(program.traced for program in sample(programs(traced=False), 60, seed=7))


def test_a_failing_program_shrinks_to_little_more_than_its_fault() -> None:
    def no_convolution(program: Program) -> None:
        assert "conv1d" not in program.kinds

    failure = explore(no_convolution, programs(), examples=200, seed=4).failure
    assert failure is not None
    program = failure.example
    assert program.kinds == ("conv1d",)
    assert (len(program.arguments), len(program.variables), len(program.outputs)) == (1, 1, 1)
    assert (program.dtype, program.axis, program.seed) == ("float32", 0, 0)


def test_the_simplest_program_is_one_activation() -> None:
    def never(program: Program) -> None:
        raise AssertionError

    failure = explore(never, programs(), examples=5).failure
    assert failure is not None
    assert failure.example.steps == (Activation("x", "tanh"),)


@pytest.mark.parametrize(
    "options",
    [
        {"kinds": ("dense", "dens")},
        {"kinds": ()},
        {"dtypes": ("float8",)},
        {"dtypes": ()},
        {"axes": (2,)},
        {"axes": ()},
        {"min_rows": -1},
        {"min_rows": 5, "max_rows": 4},
        {"min_steps": 0},
        {"min_steps": 3, "max_steps": 2},
    ],
)
def test_options_that_make_no_program_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="accepted"):
        programs(**options)
