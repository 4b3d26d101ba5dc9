"""``harness.trace``: calls a function, or watches a block, and records what TensorFlow executed for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, overload

from harness.errors import EvidenceError
from harness.evidence.build import build
from harness.evidence.recorder import record
from harness.evidence.trace import Trace

_BLOCK: Any = object()


class Tracing:
    """A ``with`` block whose ops are recorded; :attr:`trace` has them once it has ended without an exception."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._recording: Any = None
        self._trace: Trace | None = None

    @property
    def trace(self) -> Trace:
        """What ran in the block. Raises EvidenceError before its end, or where it raised."""
        if self._trace is None:
            raise EvidenceError("the block has not ended, or it raised; read .trace behind it")
        return self._trace

    def __enter__(self) -> Tracing:
        self._recording = self._stack.enter_context(record())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)
        if error is None:
            self._trace = build(self._recording)


@overload
def trace() -> Tracing: ...
@overload
def trace(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Trace: ...
def trace(fn: Any = _BLOCK, /, *args: Any, **kwargs: Any) -> Trace | Tracing:
    """Call ``fn(*args, **kwargs)`` once and record every op that TensorFlow executed for it, and where.

    Without a function, record a block: ``with harness.trace() as traced:``, then ``traced.trace``.

    The evidence is what the runtime placed or executed: never ``tensor.device``, which says CPU:0 for the result of
    a ``tf.function`` that ran elsewhere. Threads that ``fn`` starts or uses are traced too; while it runs, threads
    take turns, one op or function at a time each.

    Examples:
        >>> traced = harness.trace(step, x)
        >>> print(traced)  # a conclusion, and the ops of each device
        >>> with harness.trace() as traced:
        ...     loss = step(x)

    Raises:
        EvidenceError: ``fn`` cannot be called; called inside a ``tf.function`` or another trace; or TensorFlow ran ops
            and reported none of them.
        TensorFlowInterfaceChanged: TensorFlow's private interface is not what this version expects.
        Exception: what ``fn`` raises, unchanged.
    """
    if fn is _BLOCK and not kwargs:
        return Tracing()
    if not callable(fn):
        raise EvidenceError(f"trace: fn={fn!r} is not callable; give a function, then its arguments")
    with record(args, kwargs) as recording:
        outputs = fn(*args, **kwargs)
    return build(recording, outputs)
