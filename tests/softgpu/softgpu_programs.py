"""What the tests of software GPUs run in processes of their own."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

Values = Any


def start(spec: str) -> Any:
    """TensorFlow, with these devices."""
    import harness

    harness.configure(spec)
    import tensorflow as tf

    return tf


def run_all(*programs: Callable[[], None]) -> None:
    """Run each program, also where an earlier one fails: starting TensorFlow for each takes longer than they do."""
    failed = []
    for program in programs:
        try:
            program()
        except Exception:  # noqa: BLE001 - all of them are reported below
            failed.append(f"{program.__name__}:\n{traceback.format_exc()}")
    assert not failed, "\n".join(failed)


def assert_close(name: str, found: Values, expected: Values, tolerance: float = 1e-4) -> None:
    """Compare nested results."""
    import tensorflow as tf

    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True)
    for index, (one, other) in enumerate(pairs):
        np.testing.assert_allclose(
            np.asarray(one), np.asarray(other), rtol=tolerance, atol=tolerance, err_msg=f"{name}: output {index}"
        )


def refusal(call: Any, *kinds: type[BaseException]) -> str:
    """The message of the error that ``call`` has to raise."""
    try:
        call()
    except kinds as error:
        return str(error)
    raise AssertionError("nothing was refused")
