"""From the threads of a process to spans: the ops that its CPU devices ran, on which device, and the copies between.

An op of a graph belongs to the part of its function that one device runs (``xplane`` says how that is seen). A
``_Send`` in a part names the device of the part. Otherwise the names of its ops identify the device, if a recording of
the program has them on one device only. A process with one device needs neither. An eager op is identified by its
place in the order of the ops, if that order matches the recording's. All other ops have no device.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.evidence.roles import role_of
from harness.softgpu import loaded as software_gpus
from harness.speed.timeline.placements import Placements
from harness.speed.timeline.spans import Kind, Span
from harness.speed.timeline.xplane import Capture, Event, Line
from harness.tensorflow_version import (
    ASYNC_DONE,
    ASYNC_START,
    CAPTURED_FUNCTION,
    COPY,
    EAGER_CALL,
    EAGER_KERNEL,
    FUNCTION_RUN,
    GPU_PLANE,
    HOST_PLANE,
    NCCL_KERNEL,
    NO_OPS,
    PIPELINE_THREAD,
    PROCESS_EVENT,
    RECEIVES,
    SENDS,
    SERVICE_EVENT,
    STREAM_LINE,
)

OP = re.compile(r"^(?P<name>[\w.][\w./>\-]*):(?P<type>_?[A-Z]\w*)$")
#: A tensor that is copied: run of the function, name of the op that made it, device that receives it.
_Tensor = tuple[object, str, str]
_NUMBERS = re.compile(r"(_\d+)+$")
_PLANE = re.compile(GPU_PLANE)
_STREAM = re.compile(STREAM_LINE)
_COLLECTIVE = re.compile(NCCL_KERNEL, re.IGNORECASE)
_COPY = re.compile(COPY, re.IGNORECASE)


@dataclass
class _Part:
    """One run of the part of a function that one device runs."""

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
    """An op that finishes after it returns."""

    name: str
    type: str
    step: object
    part: object
    begin_ns: int
    end_ns: int


@dataclass
class HostPlane:
    """The activity of the threads of one process. ``devices`` are the full names of its CPU and GPU devices."""

    capture: Capture
    devices: Sequence[str]
    placements: Placements
    parts: dict[object, _Part] = field(default_factory=lambda: defaultdict(_Part))
    waits: list[_Wait] = field(default_factory=list)
    #: Ops outside all parts of functions, and whether they ran eagerly, as in a server for a client.
    loose: list[tuple[str, str, Event, bool]] = field(default_factory=list)
    #: Ops that Python started one by one, by thread: name of the op, its call, and its kernel if it ran here.
    eager: dict[int, list[tuple[str, Event, Event | None]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        starts: dict[object, tuple[Event, object]] = {}
        dones: dict[object, Event] = {}
        for index, line in enumerate(self.capture.planes.get(HOST_PLANE, ())):
            if not line.name.startswith(PIPELINE_THREAD):
                self._read(index, line, starts, dones)
        for line in self.capture.planes.get(HOST_PLANE, ()):
            for event, outer in nested(line.events):
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
        """Return the device of a part of a function, or ``None`` if it is unknown."""
        if len(self.devices) == 1:
            return self.devices[0]
        seen = self.parts[part]
        named = seen.senders
        if len(named) == 1:
            return named.pop()
        names = frozenset(name for name, type_, _ in seen.ops if type_ not in SENDS)
        return self.placements.device_of(seen.function, names) if names else None

    def spans(self, windows: Sequence[tuple[int, int]]) -> list[Span]:
        """Return the ops of all threads. ``windows`` are the calls of the program, for the order of its eager ops."""
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
            for name, type_, event, eager in self.loose
        ]
        found += self._eager_spans(windows)
        return found

    def receives(self) -> Iterator[tuple[_Tensor, tuple[int, int]]]:
        """Yield each tensor that was waited for on a known device, with the begin and end of the wait in ns."""
        for wait in self.waits:
            if wait.type in RECEIVES and (device := self.device(wait.part)) is not None:
                yield (wait.step, wait.name.rpartition("/")[0], device), (wait.begin_ns, wait.end_ns)

    def sends(self) -> Iterator[tuple[_Tensor, int]]:
        """Yield each tensor that was sent, and when, in ns."""
        for part in self.parts.values():
            for event in part.sends:
                _, _, target, *_ = [*str(event.stats.get("key", "")).split(";"), "", "", ""]
                yield (part.step, event.name.rpartition(":")[0].rpartition("/")[0], target), event.begin_ns

    def _read(self, index: int, line: Line, starts: dict[Any, Any], dones: dict[Any, Event]) -> None:
        for event, outer in nested(line.events):
            name = event.name
            if name == ASYNC_START:
                process = innermost(outer, PROCESS_EVENT)
                if process is not None:
                    starts[event.stats.get("_p"), event.stats.get("step_id")] = (event, process.stats.get("_c"))
            elif name == ASYNC_DONE:
                dones[event.stats.get("_c"), event.stats.get("step_id")] = event
            elif name == FUNCTION_RUN:
                call = innermost(outer, EAGER_CALL)
                if call is not None:
                    self.parts[event.stats.get("_p")].function = str(call.stats.get("eager_op"))
            elif name == EAGER_CALL:
                if event.stats.get("eager_op") not in NO_OPS:
                    self.eager[index].append((str(event.stats.get("eager_op")), event, None))
            elif name == EAGER_KERNEL:
                self._kernel(index, event, outer)
            elif (match := OP.match(name)) and match["type"] not in NO_OPS:
                process = innermost(outer, PROCESS_EVENT)
                if process is not None:
                    part = self.parts[process.stats.get("_c")]
                    part.step = process.stats.get("id")
                    (part.sends if match["type"] in SENDS else []).append(event)
                    part.ops.append((match["name"], match["type"], event))
                elif match["name"] != SERVICE_EVENT:
                    eager = innermost(outer, EAGER_KERNEL) is not None
                    self.loose.append((match["name"], match["type"], event, eager))

    def _kernel(self, index: int, event: Event, outer: Sequence[Event]) -> None:
        call = innermost(outer, EAGER_CALL)
        calls = self.eager[index]
        if call is not None and calls and calls[-1][1] is call and not call.stats.get("is_func"):
            calls[-1] = (calls[-1][0], call, event)

    def _eager_spans(self, windows: Sequence[tuple[int, int]]) -> Iterator[Span]:
        lines = self.capture.planes.get(HOST_PLANE, ())
        runs = sorted(event.begin_ns for line in lines for event in line.events if event.name == FUNCTION_RUN)
        for calls in self.eager.values():
            for begin, end in windows or [(0, 2**63)]:
                inside = [call for call in calls if begin <= call[1].begin_ns < end]
                devices = self._eager_devices([name for name, _, _ in inside])
                for (name, _, kernel), device in zip(inside, devices, strict=True):
                    if kernel is None or _on_gpu(device):
                        continue
                    # The ops of a kernel that is itself a function are counted where they ran.
                    if bisect_left(runs, kernel.begin_ns) == bisect_left(runs, kernel.end_ns):
                        yield Span(device, kind_of(name), name, kernel.begin_ns, kernel.end_ns, eager=True)

    def _eager_devices(self, names: Sequence[str]) -> Iterable[str | None]:
        if len(self.devices) == 1:
            return [self.devices[0]] * len(names)
        ran = [(name, device) for name, device in self.placements.eager if name not in NO_OPS]
        if [_unnumbered(name) for name, _ in ran] == [_unnumbered(name) for name in names]:
            return [device for _, device in ran]
        return [None] * len(names)


def _unnumbered(name: str) -> str:
    """Remove the number of a function, which changes when it is traced again."""
    return _NUMBERS.sub("", name) if name.startswith("__") else name


def kind_of(op_type: str) -> Kind:
    """Classify an op by its type."""
    if op_type in SENDS or op_type in RECEIVES:
        return "transfer"
    role = role_of(op_type)
    return "collective" if role == "collective" else "input" if role == "data" else "compute"


def _on_gpu(device: str | None) -> bool:
    """Whether an op on the host's threads only launches a kernel, whose time is in the GPU's plane."""
    return device is not None and "/device:CPU:" not in device and software_gpus() is None


def nested(events: Sequence[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Yield each event with those around it on its thread, the outermost first."""
    outer: list[Event] = []
    for event in events:
        while outer and outer[-1].end_ns <= event.begin_ns:
            outer.pop()
        yield event, outer
        outer.append(event)


def innermost(outer: Sequence[Event], name: str) -> Event | None:
    """Return the innermost of the events around another one that has this name."""
    return next((event for event in reversed(outer) if event.name == name), None)


def transfers_between(planes: Mapping[str, HostPlane]) -> list[Span]:
    """Return the copies between devices, of one process or several, at the device that receives.

    A copy lasts from when both sides are ready, the tensor sent and requested, until it arrives. Both ops are named
    after the op that made the tensor, and numbered: ``MatMul/_3`` is received as ``MatMul/_4``. Without exactly one of
    each there is no span.
    """
    sent: dict[_Tensor, list[int]] = defaultdict(list)
    received: dict[_Tensor, list[tuple[int, int]]] = defaultdict(list)
    for plane in planes.values():
        for tensor, at in plane.sends():
            sent[tensor].append(at)
        for tensor, wait in plane.receives():
            received[tensor].append(wait)
    found = []
    for tensor, waits in received.items():
        if len(waits) == len(sent.get(tensor, ())) == 1:
            (begin, end), (at,) = waits[0], sent[tensor]
            _, name, device = tensor
            found.append(Span(device, "transfer", name, max(begin, at), max(begin, at, end)))
    return found


def gpu_spans(capture: Capture) -> list[Span]:
    """List the kernels and copies of all GPUs of a process."""
    return [
        Span(f"{capture.task}{plane}", _kind(event.name), event.name, event.begin_ns, event.end_ns)
        for plane, lines in capture.planes.items()
        if _PLANE.match(plane)
        for line in lines
        if _STREAM.match(line.name)
        for event in line.events
    ]


def _kind(name: str) -> Kind:
    if _COLLECTIVE.match(name):
        return "collective"
    return "transfer" if _COPY.match(name) else "compute"
