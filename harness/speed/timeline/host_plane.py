"""From the threads of a process to spans: the ops that its CPU devices ran, on which device, and the copies between.

An op of a graph belongs to the part of its function that one device runs (``xplane`` says how that is seen). A
``_Send`` in a part names the device of the part. Otherwise the names of its ops identify the device, if a recording of
the program has them on one device only. A process with one device needs neither. An eager op is identified by its
place in the order of the ops, if that order matches the recording's. All other ops have no device.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.evidence.roles import role_of
from harness.speed.timeline.placements import Placements
from harness.speed.timeline.spans import Kind, Span
from harness.speed.timeline.xplane import Capture, Event, Line
from harness.tensorflow_version import (
    ASYNC_DONE,
    ASYNC_START,
    CAPTURED_FUNCTION,
    EAGER_CALL,
    EAGER_KERNEL,
    FUNCTION_RUN,
    HOST_PLANE,
    NO_OPS,
    PIPELINE_THREAD,
    PROCESS_EVENT,
    RECEIVES,
    SENDS,
    SERVICE_EVENT,
)

_OP = re.compile(r"^(?P<name>[\w.][\w./>\-]*):(?P<type>_?[A-Z]\w*)$")
_NUMBERS = re.compile(r"(_\d+)+$")


@dataclass
class _Part:
    """What is seen of the part of a function that one device ran once."""

    ops: list[tuple[str, str, Event]] = field(default_factory=list)
    sends: list[Event] = field(default_factory=list)
    function: str | None = None
    step: object = None

    @property
    def senders(self) -> set[str]:
        """The devices that the sends of this part name as their own."""
        return {str(send.stats.get("key", "")).split(";")[0] for send in self.sends}

    @property
    def is_optimizer(self) -> bool:
        """Whether TensorFlow's optimizer ran it, to fold constants: on a device of its own, that has no job."""
        return any(not sender.startswith("/job:") for sender in self.senders)


@dataclass(frozen=True, slots=True)
class _Wait:
    """An op that was started and is done later."""

    name: str
    type: str
    step: object
    part: object
    begin_ns: int
    end_ns: int


@dataclass
class HostPlane:
    """What the threads of one process did. ``devices`` are the full names of the CPU and GPU devices of the process."""

    capture: Capture
    devices: Sequence[str]
    placements: Placements
    parts: dict[object, _Part] = field(default_factory=lambda: defaultdict(_Part))
    waits: list[_Wait] = field(default_factory=list)
    #: Ops that are in no part of a function, and whether a client had them run eagerly here, as in a server.
    alone: list[tuple[str, str, Event, bool]] = field(default_factory=list)
    #: Ops that Python started one by one, by thread: name of the op, its call, its kernel where that ran here.
    eager: dict[int, list[tuple[str, Event, Event | None]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        starts: dict[object, tuple[Event, object]] = {}
        dones: dict[object, Event] = {}
        for index, line in enumerate(self.capture.planes.get(HOST_PLANE, ())):
            if not line.name.startswith(PIPELINE_THREAD):
                self._read(index, line, starts, dones)
        for line in self.capture.planes.get(HOST_PLANE, ()):
            for event, outer in _nested(line.events):
                if event.name == FUNCTION_RUN and (
                    line.name.startswith(PIPELINE_THREAD)
                    or any(each.name.startswith(CAPTURED_FUNCTION) for each in outer)
                ):
                    self.parts.pop(event.stats.get("_p"), None)
        for key, (start, part) in starts.items():
            done = dones.get(key)
            if done is not None:
                stats = start.stats
                self.waits.append(
                    _Wait(stats["name"], stats["kernel_type"], stats["step_id"], part, start.begin_ns, done.begin_ns)
                )

    def device(self, part: object) -> str | None:
        """The device of a part of a function."""
        if len(self.devices) == 1:
            return self.devices[0]
        seen = self.parts[part]
        named = seen.senders
        if len(named) == 1:
            return named.pop()
        names = frozenset(name for name, type_, _ in seen.ops if type_ not in SENDS)
        return self.placements.device_of(seen.function, names) if names else None

    def spans(self, windows: Sequence[tuple[int, int]]) -> list[Span]:
        """The ops of all threads. ``windows`` are the calls of the program, for the order of its eager ops."""
        found = []
        for key, part in self.parts.items():
            if part.is_optimizer:
                continue
            device = self.device(key)
            found += [
                Span(device, kind_of(type_), name, event.begin_ns, event.end_ns)
                for name, type_, event in part.ops
                if not _on_gpu(device)
            ]
        for wait in self.waits:
            kind = kind_of(wait.type)
            if kind in ("collective", "input"):
                found.append(Span(self.device(wait.part), kind, wait.name, wait.begin_ns, wait.end_ns))
        only = self.devices[0] if len(self.devices) == 1 else None
        found += [
            Span(only, kind_of(type_), name, event.begin_ns, event.end_ns, eager)
            for name, type_, event, eager in self.alone
        ]
        found += self._eager_spans(windows)
        return found

    def receives(self) -> Iterator[tuple[object, str, str | None, int, int]]:
        """Each tensor that was waited for: run of the function, name of the op, device, from when until when, in ns."""
        for wait in self.waits:
            if wait.type in RECEIVES:
                yield wait.step, wait.name, self.device(wait.part), wait.begin_ns, wait.end_ns

    def sends(self) -> Iterator[tuple[object, str, str, str, int]]:
        """Each tensor that was sent: run of the function, name of the op, from device, to device, when, in ns."""
        for part in self.parts.values():
            for event in part.sends:
                source, _, target, *_ = [*str(event.stats.get("key", "")).split(";"), "", "", ""]
                yield part.step, event.name.rpartition(":")[0], source, target, event.begin_ns

    def _read(self, index: int, line: Line, starts: dict[Any, Any], dones: dict[Any, Event]) -> None:
        for event, outer in _nested(line.events):
            name = event.name
            if name == ASYNC_START:
                process = _innermost(outer, PROCESS_EVENT)
                if process is not None:
                    starts[event.stats.get("_p"), event.stats.get("step_id")] = (event, process.stats.get("_c"))
            elif name == ASYNC_DONE:
                dones[event.stats.get("_c"), event.stats.get("step_id")] = event
            elif name == FUNCTION_RUN:
                call = _innermost(outer, EAGER_CALL)
                if call is not None:
                    self.parts[event.stats.get("_p")].function = str(call.stats.get("eager_op"))
            elif name == EAGER_CALL:
                if event.stats.get("eager_op") not in NO_OPS:
                    self.eager[index].append((str(event.stats.get("eager_op")), event, None))
            elif name == EAGER_KERNEL:
                self._kernel(index, event, outer)
            elif (match := _OP.match(name)) and match["type"] not in NO_OPS:
                process = _innermost(outer, PROCESS_EVENT)
                if process is not None:
                    part = self.parts[process.stats.get("_c")]
                    part.step = process.stats.get("id")
                    (part.sends if match["type"] in SENDS else []).append(event)
                    part.ops.append((match["name"], match["type"], event))
                elif match["name"] != SERVICE_EVENT:
                    eager = _innermost(outer, EAGER_KERNEL) is not None
                    self.alone.append((match["name"], match["type"], event, eager))

    def _kernel(self, index: int, event: Event, outer: Sequence[Event]) -> None:
        call = _innermost(outer, EAGER_CALL)
        calls = self.eager[index]
        if call is not None and calls and calls[-1][1] is call and not call.stats.get("is_func"):
            calls[-1] = (calls[-1][0], call, event)

    def _eager_spans(self, windows: Sequence[tuple[int, int]]) -> Iterator[Span]:
        runs = _runs(self)
        for calls in self.eager.values():
            for begin, end in windows or [(0, 2**63)]:
                inside = [call for call in calls if begin <= call[1].begin_ns < end]
                devices = self._eager_devices([name for name, _, _ in inside])
                for (name, _, kernel), device in zip(inside, devices, strict=True):
                    # A kernel that is itself a function has run its ops elsewhere, and they are counted there.
                    if kernel is not None and not _contains(kernel, runs) and not _on_gpu(device):
                        yield Span(device, kind_of(name), name, kernel.begin_ns, kernel.end_ns, eager=True)

    def _eager_devices(self, names: Sequence[str]) -> Iterable[str | None]:
        if len(self.devices) == 1:
            return [self.devices[0]] * len(names)
        known = self.placements.eager
        ran = [(name, device) for name, device in known if name not in NO_OPS]
        if [_unnumbered(name) for name, _ in ran] == [_unnumbered(name) for name in names]:
            return [device for _, device in ran]
        return [None] * len(names)


def _runs(plane: HostPlane) -> list[int]:
    """When functions were started, in ns, sorted."""
    return sorted(
        event.begin_ns
        for line in plane.capture.planes.get(HOST_PLANE, ())
        for event in line.events
        if event.name == FUNCTION_RUN
    )


def _unnumbered(name: str) -> str:
    """A function that is traced anew gets a new number."""
    return _NUMBERS.sub("", name) if name.startswith("__") else name


def kind_of(op_type: str) -> Kind:
    """What an op of this type does."""
    if op_type in SENDS or op_type in RECEIVES:
        return "transfer"
    role = role_of(op_type)
    return "collective" if role == "collective" else "input" if role == "data" else "compute"


def _contains(event: Event, instants: Sequence[int]) -> bool:
    from bisect import bisect_left

    at = bisect_left(instants, event.begin_ns)
    return at < len(instants) and instants[at] < event.end_ns


def _on_gpu(device: str | None) -> bool:
    """Whether an op on the host's threads is no more than the launch of a kernel, whose time the GPU's plane has."""
    return device is not None and "/device:CPU:" not in device


def _nested(events: Sequence[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Each event with those around it on its thread, the outermost first."""
    outer: list[Event] = []
    for event in events:
        while outer and outer[-1].end_ns <= event.begin_ns:
            outer.pop()
        yield event, outer
        outer.append(event)


def _innermost(outer: Sequence[Event], name: str) -> Event | None:
    return next((event for event in reversed(outer) if event.name == name), None)


def transfers_between(planes: Mapping[str, HostPlane]) -> list[Span]:
    """The copies between devices, of one process or several, at the device that receives.

    A copy lasts from the moment at which both sides are ready, the tensor sent and asked for, until it is there. Both
    ops are named after the op that made the tensor, and numbered: ``MatMul/_3`` is received as ``MatMul/_4``. Where
    that does not tell which belongs to which, there is no span.
    """
    sent: dict[tuple[object, str, str], list[int]] = defaultdict(list)
    for plane in planes.values():
        for step, name, _, target, at in plane.sends():
            sent[step, name.rpartition("/")[0], target].append(at)
    received: dict[tuple[object, str, str], list[tuple[int, int]]] = defaultdict(list)
    for plane in planes.values():
        for step, name, device, begin, end in plane.receives():
            if device is not None:
                received[step, name.rpartition("/")[0], device].append((begin, end))
    found = []
    for key, waits in received.items():
        if len(waits) == len(sent.get(key, ())) == 1:
            (begin, end), (at,) = waits[0], sent[key]
            found.append(Span(key[2], "transfer", key[1], max(begin, at), max(begin, at, end)))
    return found
