"""Lets each run of a program that is compared with itself draw the same random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from harness._tensorflow import interface
from harness.lazy import tf

#: Any number: TensorFlow begins anew with it.
_SEED = 20_260_101


class SameNumbers:
    """What TensorFlow, NumPy and Python draw in each run: the same, as long as the runs draw in the same order."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - what users' code has

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Begin anew. A ``tf.function`` has a trace of its own here: one from before may have no seeds."""
        traces = interface().function_context
        trace_key = traces.make_function_context

        def own_trace(scope_type: Any = None) -> Any:
            key = trace_key(scope_type)
            return key._replace(context=(key.context, "the same numbers", id(self)))

        tf.random.set_seed(_SEED)
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002
        traces.make_function_context = own_trace
        try:
            yield
        finally:
            traces.make_function_context = trace_key


@contextmanager
def numbers_kept() -> Iterator[None]:
    """Give the generators of Python and NumPy their state back, and TensorFlow its seed, with which it begins anew."""
    python, numpy, seed = random.getstate(), np.random.get_state(), interface().context.global_seed()  # noqa: NPY002
    try:
        yield
    finally:
        tf.random.set_seed(seed)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
