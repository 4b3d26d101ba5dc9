"""Every public function has an example in its docstring, and the examples do what they say."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harness

#: It takes minutes, and tests/advice runs the same.
_ELSEWHERE = {"advise"}


def _examples() -> dict[str, list[doctest.Example]]:
    """The examples of each public function."""
    functions = {name: value for name in harness._HOME if inspect.isfunction(value := getattr(harness, name))}
    return {name: doctest.DocTestParser().get_examples(value.__doc__ or "") for name, value in functions.items()}


def test_every_public_function_has_an_example() -> None:
    assert [name for name, examples in _examples().items() if not examples] == []
    assert _examples().keys() >= _ELSEWHERE


def test_the_examples_run(fresh_process: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = fresh_process(run_all)
    assert sorted(done.stdout.split()) == sorted(_examples().keys() - _ELSEWHERE)


def run_all() -> None:
    """Run the examples of all functions with two devices, a model, another one, a step and a batch."""
    import io
    from contextlib import redirect_stdout

    import tensorflow as tf

    devices = harness.configure("cpu:2")
    weights = tf.Variable(tf.ones([4, 4]))

    def model(x: Any) -> Any:
        return tf.tanh(x @ weights)

    def other_model(x: Any) -> Any:
        return tf.nn.relu(x)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(harness.make_parallel(model, devices)(x) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    given = {"harness": harness, "tf": tf, "devices": devices, "x": tf.ones([8, 4])}
    given |= {"model": model, "other_model": other_model, "step": step}
    # A report is written before it is read.
    for name, examples in sorted(_examples().items(), key=lambda item: item[0] == "load_run"):
        if name in _ELSEWHERE:
            continue
        own = dict(given)
        for example in examples:
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(example.source, name, "single"), own)
            compared = example.want and not example.options.get(doctest.SKIP)
            assert not compared or printed.getvalue() == example.want, (name, example.source, printed.getvalue())
        print(name)
