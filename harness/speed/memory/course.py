"""The memory of each device over time, from the changes that its allocator recorded and labels of the buffers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from harness.devices.name import DeviceName
from harness.speed.memory.before import Before
from harness.speed.memory.changes import Change, changes
from harness.speed.memory.labels import Label, Labels
from harness.speed.memory.peak import ALLOCATOR
from harness.speed.memory.record import KINDS, Alive, Course, Kind
from harness.speed.timeline.xplane import Capture
from harness.tensorflow_version import DEVICE_ALLOCATOR

_GPU = re.compile(DEVICE_ALLOCATOR)
#: Points in time that are kept of a call.
_MOST_POINTS = 400
#: From this share of what is held before on, constants are looked for that explain it.
_MUCH_UNKNOWN = 0.01
_VARIABLES: tuple[Kind, ...] = ("variables", "slots")
_Calls = Sequence[tuple[int, int]]
#: A time, the call that it lies in, and the bytes of each kind from then on.
_Point = tuple[int, "int | None", tuple[int, ...]]


def courses_of(
    captures: Sequence[Capture],
    calls: _Calls,
    devices: Sequence[str],
    before: Before,
    constants: Callable[[], Mapping[str, Mapping[str, int]]],
    labels: Labels,
    local: str,
) -> tuple[tuple[Course, ...], str]:
    """The courses of the devices, full names, and a sentence on those of which nothing is known.

    ``local`` is the task of this process: what is held before is known of its devices alone. ``constants`` gives the
    sizes of those of the executed graphs, by device and name, where something is unknown without them.
    """
    found: dict[str, Course] = {}
    cpus = [name for name in devices if DeviceName.parse(name).kind == "CPU" and name.startswith(local)]
    for capture in captures:
        by_allocator = changes(capture)
        gpus = {f"{capture.task}/device:GPU:{match[1]}": name for name in by_allocator if (match := _GPU.match(name))}
        for name in devices:
            here = name.startswith(f"{capture.task}/")
            there = before.by_device.get(name, ()) if capture.task == local else ()
            if name in cpus and here:
                changed, source = by_allocator.get("cpu", []), _cpu_source(cpus)
                begin = partial(Ledger.of_cpu, before, name, only=len(cpus) == 1)
            elif here and (name in gpus or there):
                changed, source = by_allocator.get(gpus.get(name, ""), []), ALLOCATOR
                begin = partial(Ledger.of_gpu, changed, there, partial(_constants, constants, name, labels))
            else:
                continue
            if (made := _Followed(name, begin, changed, calls, labels).course(source)) is not None:
                found[name] = made
    away = [DeviceName.parse(name).short for name in devices if name not in found and not name.startswith(local)]
    unknown = f"memory of {', '.join(away)}: unknown, because it belongs to another process" if away else ""
    return tuple(found[name] for name in devices if name in found), unknown


def _constants(
    constants: Callable[[], Mapping[str, Mapping[str, int]]], device: str, labels: Labels
) -> list[tuple[Label, int]]:
    return [(labels.of_constant(name), size) for name, size in constants().get(device, {}).items()]


def _cpu_source(cpus: Sequence[str]) -> str:
    shared = "; the CPUs share one memory" if len(cpus) > 1 else ""
    return f"buffers of its ops, by TensorFlow's profiler{shared}"


@dataclass(frozen=True, slots=True)
class _Buffer:
    label: Label
    size_bytes: int
    asked_bytes: int
    #: Whether it outlives the call that made it.
    stays: bool = False


@dataclass
class Ledger:
    """What is alive on a device: by address, and without one what was there before.

    ``only`` is ``None`` on a GPU. On logical CPUs it says whether there is one: it then has the buffers of which the
    device is unknown too.
    """

    device: str = ""
    only: bool | None = None
    alive: dict[int, _Buffer] = field(default_factory=dict)
    there: Counter[tuple[Label, int]] = field(default_factory=Counter)
    sums: Counter[Kind] = field(default_factory=Counter)

    @classmethod
    def of_gpu(
        cls,
        changed: Sequence[Change],
        there: Sequence[tuple[Label, int]],
        spare: Callable[[], Sequence[tuple[Label, int]]] = tuple,
    ) -> Ledger:
        """Before the first change. What is in use beyond what is ``there`` is of ``spare`` as far as it may be."""
        made = cls(there=Counter(there))
        for label, size in there:
            made.sums[label.kind] += size
        if not changed:
            return made
        first = changed[0]
        sign = -1 if first.asked_bytes is not None else 1
        in_use = (first.in_use_bytes or 0) + sign * first.given_bytes
        made._balance(in_use)
        much = made.sums["unknown"] > _MUCH_UNKNOWN * in_use
        for label, size in sorted(spare(), key=lambda each: -each[1]) if much else ():
            if size <= made.sums["unknown"]:
                made.there[label, size] += 1
                made.sums[label.kind] += size
                made.sums["unknown"] -= size
        return made

    @classmethod
    def of_cpu(cls, before: Before, device: str, *, only: bool) -> Ledger:
        """Before the first change, on one of the CPUs of this process."""
        made = cls(device, only)
        for address, (label, size) in before.by_address.items():
            if only or label.device == device:
                made._add(address, _Buffer(label, size, size))
        return made

    def apply(self, change: Change, label: Label, *, stays: bool) -> bool:
        """Note a change; return whether it was of this device. ``stays``: the buffer outlives the call."""
        if change.asked_bytes is None:
            gone = self.alive.pop(change.address, None)
            if gone is not None:
                self.sums[gone.label.kind] -= gone.size_bytes
                self._pass_on(gone.label, gone.size_bytes)
            elif self.only is None:
                self._freed(change.given_bytes)
            else:
                return False
        else:
            if self.only is False and label.device != self.device:
                return False
            self._add(change.address, _Buffer(label, change.given_bytes, change.asked_bytes, stays))
        if change.in_use_bytes is not None:
            self._balance(change.in_use_bytes)
        return True

    def _add(self, address: int, buffer: _Buffer) -> None:
        self.alive[address] = buffer
        self.sums[buffer.label.kind] += buffer.size_bytes

    def _freed(self, size: int) -> None:
        """Something of this size that was there before is gone: a variable if there is a buffer that it got instead."""
        same = [key for key, times in self.there.items() if times and key[1] == size]
        if same:
            kinds = _VARIABLES if self._staying(size) else ("inputs",)
            key = next((key for key in same if key[0].kind in kinds), same[0])
            self.there[key] -= 1
            self.sums[key[0].kind] -= size
            self._pass_on(*key)

    def _staying(self, size: int) -> list[int]:
        """Addresses of buffers of this size that outlive their call and are no variables yet."""
        return [
            at
            for at, each in self.alive.items()
            if each.stays and each.size_bytes == size and each.label.kind not in _VARIABLES
        ]

    def _pass_on(self, label: Label, size: int) -> None:
        """The buffer of a variable is freed: the last one made that stays is what was assigned to it."""
        if label.kind in _VARIABLES and (found := self._staying(size)):
            gone = self.alive.pop(found[-1])
            self.sums[gone.label.kind] -= size
            self._add(found[-1], _Buffer(label, size, gone.asked_bytes, stays=True))

    def _balance(self, in_use: int) -> None:
        """What the allocator has given out beyond what is known is unknown."""
        surplus = sum(self.sums.values()) - self.sums["unknown"] - in_use
        for key in [key for key, times in self.there.items() if times and key[0].kind == "inputs"]:
            if surplus <= 0:
                break
            # Tensors that share a buffer were counted more than once.
            self.there[key] -= 1
            self.sums["inputs"] -= key[1]
            surplus -= key[1]
        self.sums["unknown"] = max(0, -surplus)

    def held(self) -> tuple[int, ...]:
        """The bytes of each kind."""
        return tuple(self.sums[kind] for kind in KINDS)

    def rounding(self) -> int:
        """What buffers with an address have beyond what was asked for."""
        return sum(each.size_bytes - each.asked_bytes for each in self.alive.values())

    def rows(self) -> tuple[Alive, ...]:
        """What is alive, the largest first."""
        parts = [(each.label, each.size_bytes, 1) for each in self.alive.values()]
        parts += [(label, size * times, times) for (label, size), times in self.there.items() if times]
        parts += [(Label(), self.sums["unknown"], 1)] if self.sums["unknown"] else []
        sums: Counter[tuple[Kind, str, str]] = Counter()
        numbers: Counter[tuple[Kind, str, str]] = Counter()
        for label, size, times in parts:
            sums[label.kind, label.layer, label.line] += size
            numbers[label.kind, label.layer, label.line] += times
        return tuple(Alive(*key, size, numbers[key]) for key, size in sums.most_common() if size)


@dataclass(frozen=True)
class _Followed:
    """The changes of one device, and how to follow them from the begin: once for the peak, and once to it."""

    device: str
    begin: Callable[[], Ledger]
    changed: Sequence[Change]
    calls: _Calls
    labels: Labels

    def steps(self, ledger: Ledger) -> Iterator[tuple[int, int | None]]:
        """Apply each change to the ledger; give when it was, and in which call."""
        begins = [begin for begin, _ in self.calls]
        for change, freed in zip(self.changed, _ends(self.changed), strict=True):
            call = bisect_right(begins, change.at_ns) - 1
            inside = call >= 0 and change.at_ns <= self.calls[call][1]
            end = self.calls[call][1] if inside else begins[call + 1] if call + 1 < len(begins) else 2**63
            label = self.labels.of(change, self.device) if change.asked_bytes is not None else Label()
            if ledger.apply(change, label, stays=freed > end):
                yield change.at_ns, call if inside else None

    def course(self, source: str) -> Course | None:
        """Follow it through all calls, and keep the call with the highest peak; ``None`` if it never holds anything."""
        ledger = self.begin()
        # What is held when a call begins may be all that there is.
        points: list[_Point] = [(self.calls[0][0], 0, ledger.held())] if not self.changed else []
        points += [(at, call, ledger.held()) for at, call in self.steps(ledger)]
        within = [(sum(held), -at, call) for at, call, held in points if call is not None]
        if not within or not max(within)[0]:
            return None
        peak, at, call = max(within)
        ledger = self.begin()
        for moment, _ in self.steps(ledger):
            if moment == -at and sum(ledger.sums.values()) == peak:
                break
        begin, end = self.calls[call]
        earlier = [held for moment, _, held in points if moment < begin]
        first = earlier[-1] if earlier else self.begin().held()
        kept = _thinned([(begin, first), *((moment, held) for moment, number, held in points if number == call)])
        return Course(
            device=self.device,
            source=source,
            call=call + 1,
            peak_bytes=peak,
            peak_at_ns=-at - begin,
            alive=ledger.rows(),
            at_ns=tuple(moment - begin for moment, _ in kept),
            held_bytes=tuple(held for _, held in kept),
            call_ns=end - begin,
            rounding_bytes=ledger.rounding() if ledger.only is None else None,
            limit_bytes=self.changed[0].limit_bytes if self.changed else None,
        )


def _ends(changed: Sequence[Change]) -> list[int]:
    """When the buffer of each change is freed; far in the future where it is not."""
    freed: dict[int, int] = {}
    ends = []
    for change in reversed(changed):
        ends.append(freed.pop(change.address, 2**63) if change.asked_bytes is not None else change.at_ns)
        if change.asked_bytes is None:
            freed[change.address] = change.at_ns
    return ends[::-1]


def _thinned(points: Sequence[tuple[int, tuple[int, ...]]]) -> list[tuple[int, tuple[int, ...]]]:
    """At most so many points, of which the highest in each stretch stays."""
    step = -(-len(points) // _MOST_POINTS)
    return [max(points[at : at + step], key=lambda point: sum(point[1])) for at in range(0, len(points), step)]
