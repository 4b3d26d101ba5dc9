"""Runs the backward ops of any program beside their forward ops: ``harness.colocate_gradients``.

``recording.py`` notes where ops run, ``wrappers.py`` has what TensorFlow calls in the place of its own functions.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, overload

from harness._tensorflow import as_autograph, clone_of_tf_function
from harness.errors import UsageError
from harness.lazy import is_tf_function
from harness.parallel.recording import Pinned, enter, in_context, leave, sweep, thread
from harness.parallel.wrappers import install, release, stay_installed
from harness.plural import plural

_Fn = TypeVar("_Fn", bound=Callable[..., Any])


class ColocateGradients(AbstractContextManager[None]):
    """What :func:`colocate_gradients` returns: a context manager and a decorator, for any number of uses."""

    def __enter__(self) -> None:
        """Enter the context in this thread. A replica thread may be within that of its caller already."""
        if not thread.depth and not in_context():
            install()
            thread.entered = True
            thread.strangers = 0
            enter()
        thread.depth += 1

    def __exit__(self, *error: object) -> None:
        if not thread.depth:
            raise UsageError(
                "colocate_gradients was exited in a different thread; enter and exit it in the same thread"
            )
        thread.depth -= 1
        if thread.depth or not thread.entered:
            return
        thread.entered = False
        if in_context():
            leave()
        release()
        sweep()
        if thread.strangers and error[0] is None:
            warnings.warn(
                f"colocate_gradients: TensorFlow chose the device of {plural(thread.strangers, 'gradient')}, because "
                "the forward ops ran before the context was entered, or in a thread outside of it; enter the context "
                "before the forward pass",
                RuntimeWarning,
                stacklevel=2,
            )

    def __call__(self, fn: _Fn) -> _Fn:
        """``fn``, run within the context; gradients of its ops are colocated wherever a tape asks for them."""
        if not callable(fn) or inspect.isclass(fn):
            raise UsageError(
                f"colocate_gradients: fn={fn!r} is not a function; give a function, or, in a with statement, no "
                "argument"
            )
        later = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        bodies: tuple[Any, Any] = (fn, type(fn).__call__)
        if any(is_later(body) for is_later in later for body in bodies):
            raise UsageError(
                f"colocate_gradients: fn={fn!r} is a generator or async function, whose body runs after the call; "
                "decorate the function that it calls for each step"
            )

        if is_tf_function(fn):
            # A tf.function stays one. Its traces are made within the context, so it does not matter where it is called.
            return clone_of_tf_function(fn, _Colocated(fn.python_function))  # type: ignore[attr-defined,no-any-return]

        @functools.wraps(fn)
        def colocated(*args: Any, **kwargs: Any) -> Any:
            stay_installed()
            with self, Pinned():
                return as_autograph(fn)(*args, **kwargs)

        # AutoGraph passes this function by and converts the user's inside.
        colocated.autograph_info__ = None  # type: ignore[attr-defined]
        # TensorFlow unwraps what a tf.function takes as an argument or a default, and would call ``fn`` itself.
        with contextlib.suppress(TypeError, ValueError):
            colocated.__signature__ = inspect.signature(fn)  # type: ignore[attr-defined]
        colocated.fn = fn  # type: ignore[attr-defined]
        del colocated.__wrapped__
        return colocated  # type: ignore[return-value]


class _Colocated:
    """The Python function of a ``tf.function``, run within the context; it can be pickled where the function can."""

    #: AutoGraph passes the call by and converts the user's function inside.
    autograph_info__ = None

    def __init__(self, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)
        vars(self).pop("__wrapped__")  # TensorFlow would call ``fn`` itself
        with contextlib.suppress(TypeError, ValueError):
            self.__signature__ = inspect.signature(fn)
        self.fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        stay_installed()
        with ColocateGradients(), Pinned():
            return as_autograph(self.fn)(*args, **kwargs)


@overload
def colocate_gradients(fn: None = None) -> ColocateGradients: ...
@overload
def colocate_gradients(fn: _Fn) -> _Fn: ...
def colocate_gradients(fn: Any = None) -> Any:
    """Run backward ops on the devices of their forward ops, in eager code and in graphs.

    TensorFlow 2 runs the backward ops of a program where ``tape.gradient`` is called, which is one device however many
    the program uses. Within this context, each backward op runs on the device of the op that it is the gradient of, the
    sum of several gradients of a tensor on the device of that tensor, and of a variable on the device of the variable.
    TensorFlow 1 had ``colocate_gradients_with_ops=True`` for it. No value changes.

    Use it as a context manager around the forward pass and ``tape.gradient``, or as a decorator of a function that does
    both, or the forward pass alone. It holds for the thread that enters it, and for the replica threads of a strategy
    that are started within it. A ``tf.function`` has a trace of its own within the context. Contexts can be nested.

    Args:
        fn: a function to decorate; without it the context manager is returned. For a ``tf.function``, the result is a
            ``tf.function`` with the same options and traces of its own, and ``fn`` stays as it is.

    Examples:
        >>> faster = harness.colocate_gradients(step)  # or as a decorator, above tf.function too
        >>> loss = faster(x)

    Raises:
        TensorFlowInterfaceChanged: TensorFlow's gradient functions are not as in the supported versions.
    """
    context = ColocateGradients()
    return context if fn is None else context(fn)


# AutoGraph passes it by where a tf.function calls it.
colocate_gradients.autograph_info__ = None  # type: ignore[attr-defined]


@contextmanager
def pinned_to(device: str) -> Iterator[None]:
    """Run the body on ``device``, and its backward ops beside their forward ops wherever a tape asks for them.

    That holds for derivatives of every order. Rows of a variable are looked up on ``device`` too, wherever it is.
    """
    import tensorflow as tf

    stay_installed()
    before = thread.shard
    thread.shard = device
    try:
        with Pinned(), tf.device(device):
            yield
    finally:
        thread.shard = before
