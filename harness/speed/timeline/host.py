"""What the calling process itself did during the calls: from the events of the thread that made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import EvidenceError
from harness.speed.timeline.intervals import Intervals, intersect, subtract, union
from harness.speed.timeline.xplane import Capture, Event, Line
from harness.tensorflow_version import HOST_PLANE

#: What ``capture`` calls each call in the profile.
CALL_MARK = "harness.call"

#: What TensorFlow calls the making of a tensor of a Python or NumPy value.
_CONVERT = frozenset({"convert_to_tensor", "tf.constant"})
#: What a ``tf.function`` says of each call of it: ``traced-nonXla``, ``notTraced-nonXla`` and others.
_FUNCTION_CALL = "tf_function_call"
_TRACED = "traced"
_EXECUTE, _RUN = "EagerExecute", "FunctionRun"
#: An op that is nothing but the making of such a tensor.
_CONSTANT = "_EagerConst"


@dataclass(frozen=True, slots=True)
class HostEvents:
    """The calls, and what the thread that made them did in them."""

    calls: tuple[tuple[int, int], ...]
    convert: Intervals
    input: Intervals
    tracing: Intervals
    calls_traced: int
    traced: tuple[str, ...]


def host_events(capture: Capture) -> HostEvents:
    """Find the calls and what belongs to them.

    Raises:
        EvidenceError: the profile holds no call, so that it tells nothing.
    """
    lines = capture.planes.get(HOST_PLANE, ())
    caller = next((line for line in lines if any(event.name == CALL_MARK for event in line.events)), None)
    if caller is None:
        raise EvidenceError("TensorFlow's profiler recorded none of the calls; profile fewer calls with --calls")
    calls = tuple((event.begin_ns, event.end_ns) for event in caller.events if event.name == CALL_MARK)
    window = union(calls)
    traced = [event for event in caller.events if str(event.stats.get(_FUNCTION_CALL, "")).startswith(_TRACED)]
    inside = [event for event in traced if any(begin <= event.begin_ns < end for begin, end in calls)]
    return HostEvents(
        calls=calls,
        # A variable is "converted" by an op that reads it, which is no making of a tensor.
        convert=subtract(
            _during(window, [event for event in caller.events if event.name in _CONVERT]),
            _during(window, [event for event in caller.events if _is_op(event)]),
        ),
        input=_during(window, [event for event in caller.events if _gets_next(event)]),
        tracing=intersect(union(_tracing(event, caller) for event in inside), window),
        calls_traced=sum(any(begin <= event.begin_ns < end for event in inside) for begin, end in calls),
        traced=tuple(dict.fromkeys(event.name for event in inside)),
    )


def _is_op(event: Event) -> bool:
    return event.name == _EXECUTE and event.stats.get("eager_op") != _CONSTANT


def _gets_next(event: Event) -> bool:
    return event.name == _EXECUTE and "IteratorGetNext" in str(event.stats.get("eager_op"))


def _during(window: Intervals, events: Sequence[Event]) -> Intervals:
    return intersect(union((event.begin_ns, event.end_ns) for event in events), window)


def _tracing(call: Event, line: Line) -> tuple[int, int]:
    """From the begin of a call that traces until what came of it runs: TensorFlow optimises and places it first."""
    runs = [
        event.begin_ns for event in line.events if event.name == _RUN and call.begin_ns <= event.begin_ns < call.end_ns
    ]
    return call.begin_ns, min(runs, default=call.end_ns)
