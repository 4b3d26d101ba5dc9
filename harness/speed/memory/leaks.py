"""Finds what grows from step to step: bytes on a device, resources, and traced functions; and what keeps it."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness._tensorflow import interface
from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.errors import UsageError
from harness.lazy import tf
from harness.plural import plural
from harness.speed.memory.errors import MemoryGrows
from harness.speed.memory.held import Held, Kind, described, held, stores
from harness.speed.memory.keepers import Keeper, keeper_of, lengthened, lengths, named, tracing_of
from harness.speed.memory.sizes import Given, parse_size, size_text

#: How many times as many steps are taken before growth is a leak: until then it may be a cache that fills.
LONGER = 3
#: The fewest steps in which growth is looked for: fewer leave thirds of one step.
FEWEST_STEPS = 8
What = Literal["bytes", "resource", "graph", "entry"]
_UNKNOWN = "no Python object grew with it; look for a table, a queue, a cached dataset or a buffer of TensorFlow itself"


@dataclass(frozen=True, slots=True)
class Leak:
    """What grows. ``per_step`` are bytes on ``device``, or how many resources, traced functions or entries."""

    what: What
    device: str
    per_step: float
    keeper: Keeper | None

    def __str__(self) -> str:
        """One line."""
        if self.what == "bytes":
            grows = f"{self.device} holds {size_text(self.per_step)} more after each step"
        else:
            names = {"resource": "resources (such as iterators)", "graph": "traced functions", "entry": "entries"}
            grows = f"{self.per_step:.3g} more {names[self.what]} after each step"
        return f"{grows}: {self.keeper or _UNKNOWN}"


@dataclass
class Loop:
    """A loop whose memory is measured after each step. ``allowed_bytes`` may be kept of each step."""

    devices: Devices
    steps: int
    allowed_bytes: int = 0
    #: Bytes on each device after each step: what Python holds, and what a GPU's allocator has given out.
    held_bytes: dict[str, list[int]] = field(default_factory=dict)
    allocated_bytes: dict[str, list[int]] = field(default_factory=dict)
    counts: dict[What, list[int]] = field(default_factory=dict)
    #: The step after which each object was first seen, by its ``id``.
    _first: dict[int, int] = field(default_factory=dict)
    #: Variables that were there before the loop, which may grow.
    _variables: list[Any] = field(default_factory=list)
    _sizes: dict[int, int] = field(default_factory=dict)
    #: Tables and queues that were there before the loop, and the lengths of all lists, dicts and the like.
    _stores: list[Any] = field(default_factory=list)
    _entries: dict[int, int] = field(default_factory=dict)
    _lengths: dict[int, int] = field(default_factory=dict)

    @classmethod
    def given(cls, devices: Devices, steps: object, allowed: Given) -> Loop:
        """Check what the user gave.

        Raises:
            UsageError: ``steps`` is no integer of at least ``FEWEST_STEPS``.
            InvalidSize: ``allowed`` is no size.
        """
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < FEWEST_STEPS:
            raise UsageError(f"steps={steps!r}; accepted: an integer, {FEWEST_STEPS} or more")
        return cls(devices, steps, parse_size(allowed))

    def run(self) -> Iterator[int]:
        """Yield the number of each step; the body of the loop is the step.

        Raises:
            MemoryGrows: memory grows, and still does after ``LONGER`` times as many steps.
        """
        self._begin()
        try:
            for step in range(self.steps * LONGER):
                yield step
                self._look(step)
                if step + 1 == self.steps:
                    if not self._growing():
                        return
                    # The collector did not know those that were empty.
                    self._lengths |= lengths()
        finally:
            gc.unfreeze()
        leaks = self.leaks()
        if leaks:
            steps = self.steps * LONGER
            raise MemoryGrows(
                "\n".join([f"memory grows from step to step, for {plural(steps, 'step')}:", *map(str, leaks)]), leaks
            )

    def _begin(self) -> None:
        found = held()
        self._variables = [each.thing for each in found if each.kind == "variable"]
        self._sizes = {id(each.thing): each.size_bytes for each in found if each.kind == "variable"}
        self._stores = stores()
        self._entries = {id(each): int(each.size()) for each in self._stores}
        self._lengths = lengths()
        if not gc.get_freeze_count():
            # Looking at what the loop makes is fast if the collector knows nothing else.
            del found
            gc.freeze()

    def _look(self, step: int) -> None:
        # TensorFlow keeps a tensor of each Python number that an eager op was given.
        interface().pywrap.TFE_ClearScalarCache()
        tf.test.experimental.sync_devices()
        found = held()
        seen = {id(each.thing) for each in found}
        self._first = {key: self._first.get(key, step) for key in seen}
        kinds = Counter(each.kind for each in found)
        for what in ("resource", "graph"):
            self.counts.setdefault(what, []).append(kinds[what])
        self.counts.setdefault("entry", []).append(sum(int(store.size()) for store in self._stores))
        python: Counter[str] = Counter()
        earlier = [one for each in self._variables if id(each) not in seen for one in described(each, "variable")]
        for each in (*found, *earlier):
            python[each.device] += each.size_bytes
        for device in dict.fromkeys((*self.devices.names, self.devices.host)):
            self.held_bytes.setdefault(device, []).append(python[device])
            if (taken := _allocated(device)) is not None:
                self.allocated_bytes.setdefault(device, []).append(taken)

    def _growing(self) -> bool:
        return any(map(self._grows, self.held_bytes)) or any(growth(series) for series in self.counts.values())

    def _grows(self, device: str) -> float:
        """By how many bytes a device holds more after each step. The allocator rounds, so that it may see no growth."""
        return max(growth(self.held_bytes[device]), growth(self.allocated_bytes.get(device, [0] * FEWEST_STEPS)))

    def leaks(self) -> list[Leak]:
        """List what grows, once the loop has ended."""
        found, leaks = held(), []
        traced = self._late(found, ("graph",))
        per_step = growth(self.counts["graph"])
        if per_step and traced:
            leaks.append(Leak("graph", "", per_step, tracing_of(traced)))
        for device in self.held_bytes:
            per_step = self._grows(device)
            if per_step > self.allowed_bytes:
                keeper = self._keeper(found, device)
                short = DeviceName.parse(device).short
                # What a function that is traced anew holds is the same leak.
                if not (leaks and (keeper is None or keeper.is_traced)):
                    leaks.append(Leak("bytes", short, per_step, keeper))
        per_step = growth(self.counts["entry"])
        if per_step:
            larger = [each for each in self._stores if int(each.size()) > self._entries.get(id(each), 0)]
            names = ", ".join(dict.fromkeys(type(store).__name__ for store in larger))
            keeper = self._grown(larger[0] if larger else None, f"a table or queue of TensorFlow ({names})")
            leaks.append(Leak("entry", "", per_step, keeper))
        per_step = growth(self.counts["resource"])
        if per_step and (kept := self._late(found, ("resource",))):
            keeper = keeper_of(kept) or self._lengthened()
            if keeper not in [leak.keeper for leak in leaks]:
                leaks.append(Leak("resource", "", per_step, keeper))
        return leaks

    def _late(self, found: Sequence[Held], kinds: Sequence[Kind], device: str = "") -> list[Any]:
        """The largest object of each step after the first quarter of which one is still held, the latest first."""
        quarter = len(self.counts["graph"]) // 4
        late: dict[int, Held] = {}
        for each in found:
            step = self._first.get(id(each.thing), -1)
            if each.kind in kinds and step > quarter and (not device or each.device == device):
                late[step] = max(late.get(step, each), each, key=lambda one: one.size_bytes)
        return [late[step].thing for step in sorted(late, reverse=True)]

    def _keeper(self, found: Sequence[Held], device: str) -> Keeper | None:
        """What keeps most of what was made on a device, or the one object that has become larger."""
        for each in found:
            before = self._sizes.get(id(each.thing))
            if each.kind == "variable" and before is not None and each.size_bytes > before:
                name = str(getattr(each.thing, "name", ""))
                return self._grown(each.thing, f"the variable {name!r} has become larger")
        late = self._late(found, ("tensor", "variable", "resource"), device)
        return keeper_of(late) or keeper_of(self._late(found, ("resource",))) or self._lengthened()

    def _grown(self, thing: Any, text: str) -> Keeper:
        """What is known of an object that has become larger: ``text``, and the line that adds to it."""
        found = named(thing, set())
        return Keeper(text) if found is None else Keeper(text, found.place, found.line)

    def _lengthened(self) -> Keeper | None:
        """A list, dict or the like that got an entry in each step: it may keep what keeps the tensors."""
        return lengthened(self._lengths, self.steps * (LONGER - 1))


def _allocated(device: str) -> int | None:
    """What a GPU's allocator has given away; ``None`` of other devices."""
    parsed = DeviceName.parse(device)
    if parsed.kind != "GPU" or not parsed.in_this_process:
        return None
    try:
        return int(tf.config.experimental.get_memory_info(parsed.short)["current"])
    except ValueError:
        return None


def growth(series: Sequence[int]) -> float:
    """Return by how much a series of at least ``FEWEST_STEPS`` numbers grows with each step; 0 if it does not.

    A program may first fill caches, and hold more after one step than after another. So the first quarter of the steps
    does not count, and the rest is cut into thirds: what grows is at no time in one third as small as at any time in
    the third before. In a series without a trend, chance alone does that in less than one of ten million.
    """
    kept = series[len(series) // 4 :]
    third = len(kept) // 3
    parts = [kept[len(kept) - third * left : len(kept) - third * (left - 1)] for left in (3, 2, 1)]
    lows, highs = [min(part) for part in parts], [max(part) for part in parts]
    apart = lows[1] >= highs[0] and lows[2] >= highs[1]
    if not apart or not highs[0] < highs[1] < highs[2]:
        return 0.0
    return (lows[2] - lows[0]) / (2 * third)
