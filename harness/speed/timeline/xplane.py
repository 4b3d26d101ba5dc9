"""Reads TensorFlow's profile: one file a process, with planes (host, GPUs), lines (threads, streams) and events.

Found in TensorFlow 2.21, and held by ``tests/speed/test_planted_causes.py`` and ``test_servers_profiled.py``:

- A line begins at ``timestamp_ns`` after the profile's start, an event ``offset_ps`` after its line's begin. The start
  itself, in ns since 1970, is a statistic of the plane "Task Environment": it puts the profiles of several processes of
  one machine on one axis.
- An op of a graph is an event ``NAME:TYPE`` on the thread that ran it. No statistic says its device. It lies inside
  ``ExecutorState::Process``, whose ``_c`` is the ``_p`` of the ``FunctionRun`` that started this part of the function:
  one part for each device. ``harness.speed.timeline.planes`` makes use of that.
- An op that finishes later than it returns is ``ExecutorState::ProcessAsync::Start`` and ``…::Done``.
- A ``_Send`` names both devices in ``key``. A ``_Recv`` names none.
- An eager op is ``EagerExecute`` with ``eager_op``; its device is unknown.
- Each TensorFlow server of a cluster gives a profile of its own at its address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness._tensorflow import parse_xspace
from harness.errors import EvidenceError
from harness.tensorflow_version import ENVIRONMENT_PLANE, SUPPORTED


@dataclass(frozen=True, slots=True)
class Event:
    """One event. Times are ns since 1970; ``stats`` are its statistics by name."""

    name: str
    begin_ns: int
    end_ns: int
    stats: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One thread of the host, or one stream of a GPU. Its events are sorted: an outer one before those in it."""

    name: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    """The profile of one process. ``task`` begins the names of its devices: ``/job:core/replica:0/task:1``."""

    task: str
    begin_ns: int
    end_ns: int
    planes: Mapping[str, tuple[Line, ...]]


def read_xplane(path: Path, task: str) -> Capture:
    """Read the profile of the process ``task``.

    Raises:
        EvidenceError: the file is not a profile, or has no start time.
        TensorFlowInterfaceChanged: TensorFlow's classes for such files are not as expected.
    """
    return capture_of(parse_xspace(path.read_bytes(), str(path)), task, str(path))


def capture_of(space: Any, task: str, where: str) -> Capture:
    """Read the profile from an ``XSpace`` protocol buffer; ``where`` names it in messages."""
    environment = next((plane for plane in space.planes if plane.name == ENVIRONMENT_PLANE), None)
    times = _stats(environment, environment) if environment is not None else {}
    if "profile_start_time" not in times or "profile_stop_time" not in times:
        raise EvidenceError(f"{where}: the profile has no start and stop time; use TensorFlow {SUPPORTED}")
    begin_ns = int(times["profile_start_time"])
    planes = {
        plane.name: tuple(_line(plane, line, begin_ns) for line in plane.lines)
        for plane in space.planes
        if plane.name != ENVIRONMENT_PLANE
    }
    return Capture(task, begin_ns, int(times["profile_stop_time"]), planes)


def _line(plane: Any, line: Any, begin_ns: int) -> Line:
    origin_ps = (begin_ns + line.timestamp_ns) * 1000
    events = []
    for event in line.events:
        start_ps = origin_ps + event.offset_ps
        name = plane.event_metadata[event.metadata_id].name
        end_ns = (start_ps + event.duration_ps) // 1000
        events.append(Event(name, start_ps // 1000, end_ns, _stats(plane, event)))
    return Line(line.name, tuple(sorted(events, key=lambda event: (event.begin_ns, -event.end_ns))))


def _stats(plane: Any, owner: Any) -> dict[str, Any]:
    found = {}
    for stat in owner.stats:
        kind = stat.WhichOneof("value")
        if kind is None:
            continue
        value = getattr(stat, kind)
        # A shared text is stored once, as the name of a statistic.
        found[plane.stat_metadata[stat.metadata_id].name] = (
            plane.stat_metadata[value].name if kind == "ref_value" else value
        )
    return found
