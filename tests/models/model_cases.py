"""What a table of programs made of other people's models has in a row, and the ways to make a program from a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import pytest

import harness
from harness import Devices, Verdict, Verification
from harness.faults.samples import shares

Fn = Callable[..., Any]
#: A function of tensors with one result per row, its inputs by name, and the variables that it reads.
Model = tuple[Fn, Mapping[str, Any], Sequence[Any]]


@dataclass(frozen=True)
class Program:
    """What ``harness.verify`` takes."""

    parallel: Fn
    reference: Fn
    inputs: Mapping[str, Any]
    variables: Sequence[Any] = ()
    #: How many of the devices it uses.
    devices: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A program and the verdict that is right for it, with words of the reason."""

    name: str
    build: Callable[[Devices], Program]
    verdict: Verdict = Verdict.PASS
    words: tuple[str, ...] = ()
    modes: tuple[str, ...] = ("eager", "graph")


def require(config: pytest.Config, *packages: str) -> None:
    """Skip the test where a package is not installed; fail it with ``--harness-require``."""
    absent = [name for name in packages if find_spec(name) is None]
    if absent:
        stop = pytest.fail if config.getoption("--harness-require") else pytest.skip
        stop(f"not installed: {', '.join(absent)}; tox -e models installs them")


def check(case: Case, devices: Devices) -> Verification:
    """Verify the case's program and compare the verdict with the right one."""
    program = case.build(devices)
    found = harness.verify(
        program.parallel,
        program.reference,
        program.inputs,
        devices=devices[: program.devices],
        variables=program.variables,
        modes=case.modes,
        **program.options,
    )
    assert found.verdict is case.verdict, found
    for word in case.words:
        assert word in found.reason, found
    if case.verdict is Verdict.PASS:
        assert found.exercised.values > 0, found
    return found


def split(make: Callable[[], Model], *, variables: int = 2, whole: Sequence[str] = ()) -> Callable[[Devices], Program]:
    """The model under ``make_parallel``, with the gradients of its first and its last variables."""

    def build(devices: Devices) -> Program:
        fn, inputs, known = make()
        parallel = harness.make_parallel(fn, devices[:2], broadcast=whole)
        return Program(parallel, fn, inputs, _ends(known, variables))

    return build


def towers(make: Callable[[], Model]) -> Callable[[Devices], Program]:
    """The model on parts of the rows, in a device scope for each, as tutorials do it."""
    return _towers(make, lambda rows, index: shares(rows, 2)[index], lambda index: index)


def step(make: Callable[[], Model], *, colocated: bool = True) -> Callable[[Devices], Program]:
    """The loss and gradients of such towers; a tape runs backward ops where it is called, unless they are colocated."""

    def build(devices: Devices) -> Program:
        import tensorflow as tf

        model = make()
        program = towers(lambda: model)(devices)
        trained = _ends(model[2], 1)

        def taken(fn: Fn) -> Fn:
            def of_batch(**given: Any) -> Any:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(tf.nest.flatten(fn(**given))[0]))
                gradients = tape.gradient(loss, trained)
                return loss, [tf.convert_to_tensor(each) for each in gradients if each is not None]

            return of_batch

        parallel = taken(program.parallel)
        parallel = harness.colocate_gradients()(parallel) if colocated else parallel
        return Program(parallel, taken(program.reference), program.inputs)

    return build


def towers_that_drop_rows(make: Callable[[], Model]) -> Callable[[Devices], Program]:
    """Parts of ``rows // 2`` rows: the last row of an odd number is lost."""
    return _towers(make, lambda rows, _: rows // 2, lambda index: index)


def towers_on_one_device(make: Callable[[], Model]) -> Callable[[Devices], Program]:
    """Every scope names the first device."""
    return _towers(make, lambda rows, index: shares(rows, 2)[index], lambda index: 0)


def _towers(
    make: Callable[[], Model], size: Callable[[int, int], int], place: Callable[[int], int]
) -> Callable[[Devices], Program]:

    def build(devices: Devices) -> Program:
        import tensorflow as tf

        fn, inputs, _ = make()

        def parallel(**given: Any) -> Any:
            results, start = [], 0
            for index in range(2):
                rows = size(int(next(iter(given.values())).shape[0]), index)
                with tf.device(devices[place(index)].name):
                    results.append(fn(**{name: each[start : start + rows] for name, each in given.items()}))
                start += rows
            return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *results)

        return Program(parallel, fn, inputs)

    return build


def swapped_parts(make: Callable[[], Model]) -> Callable[[Devices], Program]:
    """The parts are joined in the wrong order."""

    def build(devices: Devices) -> Program:
        import tensorflow as tf

        fn, inputs, _ = make()

        def parallel(**given: Any) -> Any:
            parts = []
            for index in range(2):
                with tf.device(devices[index].name):
                    parts.append(fn(**{name: tf.split(each, 2)[index] for name, each in given.items()}))
            return tf.nest.map_structure(lambda one, other: tf.concat([other, one], 0), *parts)

        return Program(parallel, fn, inputs)

    return build


def mean_of_means(make: Callable[[], Model]) -> Callable[[Devices], Program]:
    """The mean of two parts' means is not the mean of the batch: the parts differ in size."""

    def build(devices: Devices) -> Program:
        import tensorflow as tf

        fn, inputs, _ = make()

        def loss(**given: Any) -> Any:
            return tf.reduce_mean(tf.square(tf.nest.flatten(fn(**given))[0]))

        def parallel(**given: Any) -> Any:
            losses = []
            for index, part in enumerate((slice(0, 3), slice(3, None))):
                with tf.device(devices[index].name):
                    losses.append(loss(**{name: each[part] for name, each in given.items()}))
            return tf.add_n(losses) / 2.0

        return Program(parallel, loss, inputs)

    return build


def _ends(variables: Sequence[Any], count: int) -> list[Any]:
    """The first and the last ``count`` of the variables, without the same one twice."""
    if not count:
        return []
    kept = {id(variable): variable for variable in (*variables[:count], *variables[-count:])}
    return list(kept.values())
