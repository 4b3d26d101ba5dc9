"""Each rule of the table against TensorFlow's kernels: rows of the result = the result of the rows, parts add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from samples_of_last_axes import SAMPLES

from harness.proof.claim import Question, answer
from harness.proof.evaluation import Elementwise, Rule
from harness.proof.programs import Given, traced
from harness.proof.rules.table import FAMILIES, TABLE

pytestmark = pytest.mark.usefixtures("devices")
_LARGEST = (SAMPLES["Max"].fn, SAMPLES["Min"].fn)
_ERRORS = (ValueError, TypeError, tf.errors.OpError, AssertionError)


def test_every_rule_has_a_sample_and_every_sample_a_rule() -> None:
    assert set(SAMPLES) == set(TABLE)
    assert sum(map(len, FAMILIES.values())) == len(TABLE), "a rule stands in one family"


def _variants(fn: Any, arrays: tuple[Any, ...]) -> dict[str, tuple[Any, Any]]:
    """Programs on parts of the arguments, and on the whole, that may or may not be equal."""
    found: dict[str, tuple[Any, Any]] = {"itself": (fn, fn)}
    shapes = {np.shape(x) for x in arrays}
    axes = {(size, k - len(shape)) for shape in shapes for k, size in enumerate(shape) if size > 2}
    for size, _ in sorted(axes):
        places = [[k for k, own in enumerate(np.shape(x)) if own == size] for x in arrays]
        chosen = [[None, *each] for each in places]
        for at in np.ndindex(*map(len, chosen)):
            picked = [each[i] for each, i in zip(chosen, at, strict=True)]
            alike = {k for k in picked if k is not None}
            if not alike or (len(alike) > 1 and len(arrays) > 2):
                continue
            for join in (0, 1, "largest" if fn in _LARGEST else "sum"):
                name = f"rows {picked} joined by {join}"
                found[name] = (_on_parts(fn, picked, size, join), fn)
    for j, x in enumerate(arrays[:2]):
        if np.asarray(x).dtype.kind == "f":
            found[f"3 times argument {j}"] = (_scaled(fn, j), lambda *xs: _each(lambda y: 3 * y, fn(*xs)))
            found[f"argument {j} in two parts"] = (_added(fn, j), fn)
    return found


def _each(fn: Any, value: Any) -> Any:
    return [fn(y) for y in value] if isinstance(value, (list, tuple)) else fn(value)


def _on_parts(fn: Any, picked: list[int | None], size: int, join: Any) -> Any:
    def program(*xs: Any) -> Any:
        pieces = []
        for place in ((0, 1), (1, size)):
            own = [x if k is None else tf.gather(x, tf.range(*place), axis=k) for x, k in zip(xs, picked, strict=True)]
            pieces.append(tf.nest.flatten(fn(*own)))
        joins = {"sum": lambda ys: tf.add_n(ys), "largest": lambda ys: tf.maximum(*ys)}
        return [joins[join](ys) if join in joins else tf.concat(ys, join) for ys in zip(*pieces, strict=True)]

    return program


def _scaled(fn: Any, j: int) -> Any:
    return lambda *xs: fn(*(3 * x if at == j else x for at, x in enumerate(xs)))


def _added(fn: Any, j: int) -> Any:
    def program(*xs: Any) -> Any:
        halves = [[x * half if at == j else x for at, x in enumerate(xs)] for half in (0.25, 0.75)]
        one, other = (tf.nest.flatten(fn(*each)) for each in halves)
        return [a + b for a, b in zip(one, other, strict=True)]

    return program


#: A commit tries a part of these, which are all rows of one kind.
_ALIKE = {name: pytest.mark.rotated(4) for name in FAMILIES["last_axes"]}


@pytest.mark.parametrize("op_type", [pytest.param(name, marks=_ALIKE.get(name, ())) for name in sorted(TABLE)])
def test_what_a_rule_claims_is_what_the_kernel_computes(op_type: str) -> None:
    sample = SAMPLES[op_type]
    inputs = {f"x{at}": tf.constant(x) for at, x in enumerate(sample.arrays)}
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    concrete = tf.function(lambda **xs: sample.fn(*xs.values()))
    seen: set[str] = set()
    _op_types(concrete.get_concrete_function(**inputs).graph, seen)
    assert op_type in seen, f"the sample does not contain {op_type}"
    for name, (one, other) in _variants(sample.fn, sample.arrays).items():
        try:
            pair = [tf.nest.flatten(fn(*inputs.values())) for fn in (one, other)]
        except _ERRORS:
            continue
        if len(pair[0]) == len(pair[1]) and all(
            a.shape == b.shape and a.dtype == b.dtype for a, b in zip(*pair, strict=True)
        ):
            ours[name], theirs[name] = (one, pair[0]), (other, pair[1])

    def all_of(programs: dict[str, Any]) -> Any:
        return lambda **xs: {name: tf.nest.flatten(fn(*xs.values())) for name, (fn, _) in programs.items()}

    given = Given.of(inputs)
    one, other = (traced(all_of(programs), given, [], gradients=False) for programs in (ours, theirs))
    proof = answer(Question(lambda _: (one, other), given.shapes), any_batch=False)
    numbers = [y for programs in (ours, theirs) for name in sorted(programs) for y in programs[name][1]]
    pairs = list(zip(numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :], strict=True))
    claimed = [each for each in proof.results if not each.name.endswith("after the call")]
    assert len(claimed) == len(pairs)
    for each, (a, b) in zip(claimed, pairs, strict=True):
        if each.proved:
            assert _close(a.numpy(), b.numpy()), f"{each.name} is proved and differs"
    proved = {each.name for each in claimed if each.proved}
    assert any("itself" in name for name in proved)
    if isinstance(TABLE[op_type], (Rule, Elementwise)):
        assert any("rows" in name for name in proved), "the rule has no effect"


def _op_types(graph: Any, seen: set[str]) -> None:
    for op in graph.get_operations():
        seen.add(op.type)


def _close(a: Any, b: Any) -> bool:
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True))
