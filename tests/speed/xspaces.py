"""Makes profiles as TensorFlow's profiler writes them, by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness._tensorflow import parse_xspace

#: An event: its name, when it begins and how long it takes in ns, and its statistics.
Made = tuple[str, int, int, Mapping[str, object]]

START_NS = 1_000_000


def space(planes: Mapping[str, Mapping[str, Sequence[Made]]], stop_ns: int = START_NS + 10_000) -> Any:
    """An ``XSpace`` with these events by plane and line. Times are ns after the profile's start."""
    made = parse_xspace(b"", "an empty profile")
    for plane_name, lines in planes.items():
        plane = made.planes.add(name=plane_name)
        for line_name, events in lines.items():
            line = plane.lines.add(name=line_name, timestamp_ns=0)
            for name, begin_ns, duration_ns, stats in events:
                event = line.events.add(
                    metadata_id=_known(plane.event_metadata, name),
                    offset_ps=begin_ns * 1000,
                    duration_ps=duration_ns * 1000,
                )
                for key, value in stats.items():
                    _add(plane, event, key, value)
    environment = made.planes.add(name="Task Environment")
    _add(environment, environment, "profile_start_time", START_NS)
    _add(environment, environment, "profile_stop_time", stop_ns)
    return made


def _add(plane: Any, owner: Any, key: str, value: object) -> None:
    stat = owner.stats.add(metadata_id=_known(plane.stat_metadata, key))
    if isinstance(value, str):
        stat.ref_value = _known(plane.stat_metadata, value)  # the profiler keeps texts like this
    else:
        stat.uint64_value = value


def _known(metadata: Any, name: str) -> int:
    for key, entry in metadata.items():
        if entry.name == name:
            return int(key)
    key = len(metadata) + 1
    metadata[key].id = key
    metadata[key].name = name
    return key
