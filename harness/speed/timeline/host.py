"""The activity of the calling process during the calls, from the events of the thread that made them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.errors import EvidenceError
from harness.speed.timeline.record import HostTimes
from harness.speed.timeline.spans import Intervals, intersect, length, subtract, union
from harness.speed.timeline.xplane import Capture, Event, Line
from harness.tensorflow_version import EAGER_CALL, FUNCTION_RUN, HOST_PLANE, NO_OPS

#: The name of each call in the profile, given by ``capture``.
CALL_MARK = "harness.call"

#: TensorFlow's names for making a tensor of a Python or NumPy value.
_CONVERT = frozenset({"convert_to_tensor", "tf.constant"})
#: The statistic of each call of a ``tf.function``: ``traced-nonXla``, ``notTraced-nonXla`` and others.
_FUNCTION_CALL = "tf_function_call"
_TRACED = "traced"


def caller_of(capture: Capture) -> tuple[Line, tuple[tuple[int, int], ...]]:
    """Find the thread that made the calls, and the begin and end of each.

    Raise EvidenceError if the profile holds no call.
    """
    lines = capture.planes.get(HOST_PLANE, ())
    caller = next((line for line in lines if any(event.name == CALL_MARK for event in line.events)), None)
    if caller is None:
        raise EvidenceError("TensorFlow's profiler recorded none of the calls; profile fewer calls with --calls")
    return caller, tuple((event.begin_ns, event.end_ns) for event in caller.events if event.name == CALL_MARK)


def host_times(caller: Line, calls: Sequence[tuple[int, int]], alone_ns: int, reads: int) -> HostTimes:
    """Add up what the thread ``caller`` did in its calls. ``reads``: how often each call read the value of a tensor."""
    window = union(calls)
    traced = [event for event in caller.events if str(event.stats.get(_FUNCTION_CALL, "")).startswith(_TRACED)]
    inside = [event for event in traced if any(begin <= event.begin_ns < end for begin, end in calls)]
    ops = [each for each in caller.events if each.name == EAGER_CALL and each.stats.get("eager_op") not in NO_OPS]
    conversions = _during(window, (event for event in caller.events if event.name in _CONVERT))
    inputs = (event for event in ops if "IteratorGetNext" in str(event.stats.get("eager_op")))
    return HostTimes(
        alone_ns=alone_ns,
        input_ns=length(_during(window, inputs)),
        tracing_ns=length(intersect(union(_tracing(event, caller) for event in inside), window)),
        # A variable is "converted" by an op that reads it, which makes no tensor of a Python value.
        convert_ns=length(subtract(conversions, _during(window, ops))),
        calls_traced=sum(any(begin <= event.begin_ns < end for event in inside) for begin, end in calls),
        traced=tuple(dict.fromkeys(event.name for event in inside)),
        reads=reads * len(calls),
    )


def _during(window: Intervals, events: Iterable[Event]) -> Intervals:
    return intersect(union((event.begin_ns, event.end_ns) for event in events), window)


def _tracing(call: Event, line: Line) -> tuple[int, int]:
    """From the begin of a call that traces until its graph runs: TensorFlow optimises and places it first."""
    runs = [event.begin_ns for event in line.events if event.name == FUNCTION_RUN]
    return call.begin_ns, min((at for at in runs if call.begin_ns <= at < call.end_ns), default=call.end_ns)
