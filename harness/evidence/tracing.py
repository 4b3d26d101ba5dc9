"""``harness.trace``: calls a function, and records what TensorFlow executed for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.errors import EvidenceError
from harness.evidence.build import build
from harness.evidence.recorder import record
from harness.evidence.trace import Trace


def trace(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Trace:
    """Call ``fn(*args, **kwargs)`` once and record every op that TensorFlow executed for it, and where.

    The evidence is what the runtime placed or executed: never ``tensor.device``, which says CPU:0 for the result of
    a ``tf.function`` that ran elsewhere. Threads that ``fn`` starts or uses are traced too; while it runs, threads
    take turns, one op or function at a time each.

    Raises:
        EvidenceError: ``fn`` cannot be called; called inside a ``tf.function`` or another trace; or TensorFlow ran ops
            and reported none of them.
        TensorFlowInterfaceChanged: TensorFlow's private interface is not what this version expects.
        Exception: what ``fn`` raises, unchanged.
    """
    if not callable(fn):
        raise EvidenceError(f"trace: fn={fn!r} is not callable; give a function, then its arguments")
    with record(args, kwargs) as recording:
        outputs = fn(*args, **kwargs)
    return build(recording, outputs)
