"""Finds work on one shard of a batch that is done away from that shard's device.

Shards are the parts of a batch that several devices run the same program on. Where a step of the program runs on a
shard's own device, the same step of another shard does not belong there too: its place is the other shard's device.
So a pipeline, whose devices all see every part, is left alone, and so is a device that only collects. What is out of
place is weighed: an offset that the host adds to an index is nothing, a layer is a finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from functools import cached_property
from itertools import islice
from statistics import fmean

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.arithmetic import JOINS, MOVEMENT, PYTHON, computes, floats, moved, on_device
from harness.evidence.op import Op
from harness.evidence.roles import LOOKUPS
from harness.evidence.trace import Trace
from harness.judgement.accounting import checks_of, has_weights, is_product
from harness.judgement.provenance import SEVERAL, SLICES, Cut, Provenance
from harness.judgement.strays import Misplaced, cause_of
from harness.judgement.wiring import reached

#: The share of a shard's work from which on it is a finding elsewhere: less costs less than it takes to look at it.
SHARE = 0.05
#: The share from which on it is a finding on the host, where the program may prepare and collect its shards.
_MOST = 0.5
_SCALES = frozenset({"Div", "DivNoNan", "Mul", "Neg", "RealDiv"})
_SUMS = frozenset({"Add", "AddV2"})
_SLICES = frozenset({"Slice", "StridedSlice"})
#: Ops that make less of what is then joined.
_REDUCTIONS = frozenset({"All", "Any", "Max", "Min", "Prod", "Sum"})


class Shards:
    """The parts of one family, and where the work on each of them was done."""

    def __init__(self, cut: Cut, provenance: Provenance, devices: Devices, trace: Trace) -> None:
        self.parts, self.family, self.whole = cut.parts, cut.family, cut.whole
        #: Other families, each part of which is always used with one part of this one: their part by this one's.
        self.companions: list[tuple[Shards, Mapping[int, int]]] = []
        self.provenance = provenance
        self.wiring = provenance.wiring
        #: Whether parts are expected on the devices in their order; branches are placed one by one.
        self.are_dealt = True
        self.order = [device.parsed for device in devices]
        self.devices = set(self.order)
        self.host = DeviceName.parse(devices.host)
        self.first = self.order[0]
        self.trace = trace
        self.ops = self._ordered()
        # What is done to a gradient before an update is the optimizer's work, which belongs to the variable.
        optimizer = self._done_to_gradients()
        self.optimized = [op for op in self.ops if op.name in optimizer and op.role == "forward" and computes(op)]
        worked = [op for op in self.ops if computes(op) and op.role == "forward" and op.type not in PYTHON]
        # What cuts a part out is no work on it.
        worked = [op for op in worked if op.type not in SLICES or (self.sources(op.name) and not self._is_margin(op))]
        checks = checks_of(self.wiring)
        worked = [op for op in worked if op.name not in optimizer | checks]
        # What a scope asked for says where its part was meant to be, even if its work was done elsewhere in the end.
        self._moved = [op for op in worked if self.place(op) is None and op.requested in self.devices]
        worked = [op for op in worked if self.place(op) is not None]
        floating = [op for op in worked if not (dtypes := self.wiring.dtypes(op)) or floats(dtypes)]
        # Integers and texts, which the host has wherever their op is, count if nothing else is computed.
        self.worked = floating or worked or [op for op in self.ops if self._asked(op) and op.name not in checks]

    @cached_property
    def differ_in_width(self) -> bool:
        """Whether the parts are of different sizes along another axis than the rows, as those of a layer are.

        It takes shapes, for which TensorFlow has to import the graph again. So it is asked last.
        """
        results = [(self.trace.shapes.get(name, ()), port or 0) for name, port in self.parts]
        shapes = [known[port] if port < len(known) else None for known, port in results]
        return None not in shapes and len({tuple(shape or ())[1:] for shape in shapes}) > 1

    def part(self, op: Op) -> int:
        """The part that an op works on, or SEVERAL."""
        return self.family[op.name]

    def _is_margin(self, op: Op) -> bool:
        """Whether an op cuts out of its part what only other parts read."""
        readers = {self.family.get(each.name) for each in self.wiring.followers(op)}
        return op.type in _SLICES and bool(readers) and readers.isdisjoint({None, SEVERAL, self.part(op)})

    def _ordered(self) -> list[Op]:
        """The ops that work on one part, each after those that it reads from."""
        ordered: list[Op] = []
        seen: set[str] = set()
        by_name = self.wiring.by_name
        for start, part in self.family.items():
            stack = [(start, False)] if part != SEVERAL else []
            while stack:
                name, ready = stack.pop()
                if ready:
                    ordered.append(by_name[name])
                elif name not in seen:
                    seen.add(name)
                    stack.append((name, True))
                    stack += [(source, False) for source in self.sources(name) if source not in seen]
        return ordered

    def sources(self, name: str) -> list[str]:
        """The ops on the same part that an op reads from."""
        part = self.family[name]
        return [source for source, _ in self.provenance.sources[name] if self.family.get(source) == part]

    def place(self, op: Op) -> DeviceName | None:
        """Where an op ran; for one that was optimised away, where its work went, if it could have been there."""
        if not on_device(op):
            return self._asked(op) or op.device
        if op.device is not None:
            return op.requested if self.wiring.rearranged(op) else op.device
        users = self.wiring.users(op)
        place = users.pop() if len(users) == 1 else None
        return place if place is not None and (op.requested is None or place.matches(op.requested)) else None

    def _asked(self, op: Op) -> DeviceName | None:
        """The device that a scope names for work on integers of 32 bits or texts."""
        if on_device(op) or op.role != "forward" or op.type in MOVEMENT | SLICES | PYTHON:
            return None
        return self.scope_of(op)

    def scope_of(self, op: Op) -> DeviceName | None:
        """The device that an op's scope names, where it is one of the devices."""
        found = [device for device in self.devices if op.requested and device.matches(op.requested)]
        return found[0] if len(found) == 1 else None

    @cached_property
    def _weights(self) -> Mapping[str, float]:
        """How much an op of each type works on average, where its size is known."""
        known: dict[str, list[float]] = defaultdict(list)
        for op in self.worked:
            known[op.type] += filter(None, [self.trace.work.get(op.name)])
        return {kind: fmean(works) for kind, works in known.items() if works}

    def weight(self, op: Op) -> float:
        """How much an op works, by its shapes, by others of its type or, where no size is known, by its type."""
        known = self.trace.work.get(op.name) if self._weights else None
        return known or self._weights.get(op.type, 100.0 if is_product(op) else 1.0)

    def misplaced(self) -> Iterator[Misplaced]:
        """Work that is done on the device of another shard, on the host, or where TensorFlow puts what has no scope."""
        if not self.worked:
            return
        labels, homes = self._labels, self.homes
        strays: list[tuple[Op, int, DeviceName, bool]] = []
        worked = {op.name for op in self.worked}
        entered = self._after(lambda op: op.name in worked and self.place(op) in homes.get(self.part(op), ()))
        for step in self.steps.values():
            for op in step.values():
                device, part = self.place(op), self.part(op)
                own = homes.get(part, set())
                if device is None or not own or device in own or self.excused(op):
                    continue
                if moved(op) and op.type not in LOOKUPS:
                    continue  # judged by what its scope asked for
                if device in self.devices:
                    fewest = min(len(labels[home]) for home in own)
                    if not self._of_another(op, step) or len(labels[device]) <= fewest:
                        continue
                elif device != self.host and op.requested is not None:
                    continue
                unscoped = op.requested is None and (op.name not in entered or self.updates(op))
                # Even where the host is one of the devices, what lives in its memory may be meant to be there.
                hosts_own = device not in self.devices or not on_device(op)
                on_host = op.requested is not None and device == self.host and hosts_own
                free = unscoped or (on_host and op.type not in LOOKUPS)
                strays.append((op, part, device, free))
        scoped = {(part, device) for op, part, device, _ in strays if op.requested and op.type not in LOOKUPS}
        away: dict[tuple[int, DeviceName, bool, str], list[Op]] = defaultdict(list)
        for op, part, device, free in strays:
            away[part, device, free, cause_of(op, homes[part], others=(part, device) in scoped)].append(op)
        for (part, _, free, cause), ops in away.items():
            share = sum(map(self.weight, ops)) / sum(map(self.weight, self._worked_with(part)))
            # What stands before a scope may prepare the rows; what works with weights is a model.
            model = any(op.requested is None and has_weights(op) and not self.updates(op) for op in ops)
            if share >= (_MOST if free and not model else SHARE):
                home = min(homes[part], key=str)
                for op in ops:
                    yield Misplaced(op, home, cause, share)

    @cached_property
    def steps(self) -> dict[tuple[int, int], dict[int, Op]]:
        """The same op of each part: reached from the cut by the same ops."""
        shapes: dict[str, int] = {}
        for op in self.ops:
            part = self.part(op)
            # Parts at the edge have fewer neighbours, rows of which they are joined with, and filling on one side.
            inputs = [
                shapes.get(name, 0) if self.family.get(name) == part else -(name in self.family)
                for name, _ in self.provenance.sources[op.name]
                if op.type not in JOINS or self.family.get(name) == part
            ]
            shapes[op.name] = hash((op.type, *(sorted(inputs) if op.type in JOINS else inputs)))
        done: dict[int, dict[int, list[Op]]] = defaultdict(lambda: defaultdict(list))
        for op in self.worked:
            done[shapes[op.name]][self.part(op)].append(op)
        steps: dict[tuple[int, int], dict[int, Op]] = defaultdict(dict)
        for shape, parts in done.items():
            # A device that does this to every part, where another one does it to some of them once more, as a student
            # and its teacher do, is the device of no part.
            everywhere = set.intersection(*({self.place(op) for op in ops} for ops in parts.values()))
            if everywhere & self.devices and len({len(ops) for ops in parts.values()}) > 1:
                continue
            for part, ops in parts.items():
                for time, op in enumerate(ops):
                    steps[shape, time][part] = op
        return steps

    def odd_ones(self) -> set[str]:
        """The ops that are not at home, where most parts do the same at home, and on at least two devices."""
        found: set[str] = set()
        for step in self.steps.values():
            places = {part: self.place(op) for part, op in step.items()}
            at_home = [place for part, place in places.items() if place in self.homes.get(part, ())]
            if len(set(at_home)) > 1 and len(at_home) > len(step) / 2:
                found.update(op.name for part, op in step.items() if places[part] not in self.homes.get(part, ()))
        return found

    def is_home_of(self, op: Op) -> bool:
        """Whether an op is on a device that works on no other part than that of the op."""
        place, part = self.place(op), self.family.get(op.name, SEVERAL)
        return place is not None and place in self.homes.get(part, ()) and self._labels[place] == {part}

    @property
    def are_on_several(self) -> bool:
        """Whether work on single parts is done on several devices, or asked for there."""
        ops = (self.wiring.by_name[name] for name, part in self.family.items() if part != SEVERAL)
        return len({(op.device if on_device(op) else op.requested) or op.requested for op in ops} - {None}) > 1

    def _worked_with(self, part: int) -> Iterator[Op]:
        """The work on a part, and on the parts of other families that are always used with it, each op once."""
        own = {op.name: op for op in self.worked if self.part(op) == part}
        for other, met in self.companions:
            own |= {op.name: op for op in other.worked if other.part(op) == met.get(part, SEVERAL)}
        return iter(own.values())

    def is_within(self, other: Shards) -> bool:
        """Whether all of these parts were cut from one part of another family."""
        return len({other.family.get(op.name) for op in self.worked}) == 1

    def made_apart(self, name: str | None) -> bool:
        """Whether each of the devices made its own of what this op made, from its own part."""
        op = self.wiring.by_name.get(name or "")
        if op is not None and op in self.optimized:  # what became of a gradient is made where the gradient is
            behind = reached([op], lambda each: [self.wiring.by_name[source] for source in self.sources(each.name)])
            op = next((each for each in behind if each.role == "gradient"), op)
        name = name if op is None or op.role != "gradient" else op.forward
        for step in self.steps.values():
            if any(each.name == name for each in step.values()):
                places = {self.place(each) for each in step.values()}
                return len(step) == len(places) > 1 and places <= self.devices
        return False

    @cached_property
    def _labels(self) -> Mapping[DeviceName, set[int]]:
        """The parts that each device works on, or was asked to work on."""
        labels: dict[DeviceName, set[int]] = defaultdict(set)
        for op in (*self.worked, *self._moved):
            if (place := self.place(op) or op.requested) is not None and not self.handed_on(op):
                labels[place].add(self.part(op))
        return labels

    @cached_property
    def homes(self) -> dict[int, set[DeviceName]]:
        """The devices of each part: of those that work on it, those that work on the fewest other parts."""
        labels = self._labels
        if not any(len({self.place(op) for op in step.values()} & self.devices) > 1 for step in self.steps.values()):
            # Lookups run at their variable. Where their rows are handed to says where they were meant to be.
            if not any(op.type in LOOKUPS for op in self.worked):
                return {}
            labels = defaultdict(set)
            for op in self.ops:
                if op.requested is not None and op.requested.index is not None and op.role in ("forward", "control"):
                    for device in self.devices:
                        if device.matches(op.requested):
                            labels[device].add(self.part(op))
        places: dict[int, set[DeviceName]] = defaultdict(set)
        for device, parts in labels.items():
            for part in parts if device in self.devices else ():
                places[part].add(device)
        homes = {}
        for part, found in places.items():
            fewest = min(len(labels[device]) for device in found)
            homes[part] = {device for device in found if len(labels[device]) == fewest}
        return self._dealt(homes) if self.are_dealt else homes

    def _dealt(self, homes: dict[int, set[DeviceName]]) -> dict[int, set[DeviceName]]:
        """The homes; where all parts but one are dealt out in the order of the devices, so is that one.

        A device that does nothing at all is unused, wherever its part is, and one that runs a layer on the joined parts
        is that layer's.
        """
        wrong = [part for part, own in homes.items() if part >= len(self.order) or own != {self.order[part]}]
        if len(homes) == len(self.order) > 2 and len(wrong) == 1 and wrong[0] < len(self.order):
            home = self.order[wrong[0]]
            there = [op for op in self.wiring.ops if op.device == home and computes(op)]
            if there and not any(map(self._is_layer_on_all, there)):
                homes[wrong[0]] = {home}
        return homes

    def _is_layer_on_all(self, op: Op) -> bool:
        """Whether an op multiplies what several parts were joined to with weights."""
        sources = {name for name, _ in self.provenance.sources[op.name]}
        of_all = self.family.get(op.name) == SEVERAL and op.role == "forward"
        return of_all and is_product(op) and not sources <= self.family.keys()

    def _of_another(self, op: Op, step: dict[int, Op]) -> bool:
        """Whether an op is where another part is at home, which does the same there."""
        device, part, homes, steps = self.place(op), self.part(op), self.homes, self.steps
        others = [other for other, own in homes.items() if other != part and device in own]
        if len(step) > 1:
            return any(other in step and self.place(step[other]) == device for other in others)
        # A branch that this part alone took, where all others do the same as each other.
        alike = {frozenset(key for key, each in steps.items() if other in each) for other in homes if other != part}
        return len(homes) > 2 and len(alike) == 1 and bool(others)

    def _after(self, start: Callable[[Op], bool]) -> set[str]:
        """The ops on one part that come after one for which ``start`` is true."""
        found: set[str] = set()
        for op in self.ops:
            if any(name in found or start(self.wiring.by_name[name]) for name in self.sources(op.name)):
                found.add(op.name)
        return found

    def _done_to_gradients(self) -> set[str]:
        """The ops on one part that come after a gradient, be it of these parts or of those of another family.

        They end where the part's rows come in again: a layer with weights that a client has updated is a model's.
        """
        found: set[str] = set()
        for op in self.ops:
            makers = [self.wiring.by_name.get(name) for name, _ in self.provenance.sources[op.name]]
            updated = {maker.name for maker in makers if maker and (maker.name in found or maker.role == "gradient")}
            if updated and not (is_product(op) and self._reads_rows(op, updated)):
                found.add(op.name)
        return found

    def _reads_rows(self, op: Op, updated: Set[str]) -> bool:
        """Whether an op reads its part, another argument, or what was made of these, and did not come of gradients."""
        read = [source for source in self.provenance.sources[op.name] if source[0] not in updated]
        made = self.provenance.made_of(read, lambda each: each.role != "gradient")
        rows = (name.startswith("argument[") or {(name, port), (name, None)} & self.parts.keys() for name, port in made)
        return any(rows) or any(self.part(op) == self.family.get(name) for name, _ in read)

    def excused(self, op: Op) -> bool:
        """Whether an op only weights what is then joined, or is done where its part is handed on to."""
        if op.type in _SCALES | _REDUCTIONS:
            ends = list(self.ends(op, lambda reader: reader.type in _SCALES | MOVEMENT))
            if ends and all(self.family[end.name] == SEVERAL or end.role == "update" for end in ends):
                return True
        return self.handed_on(op)

    def updates(self, op: Op) -> bool:
        """Whether an op is done for variables alone, such as those of a metric, and so belongs to them."""
        places = (None, self.place(op))
        ends = self.ends(
            op, lambda reader: reader.role == "forward" and (reader.device in places or reader.type in MOVEMENT)
        )
        return {end.role for end in ends} == {"update"}

    def handed_on(self, op: Op) -> bool:
        """Whether an op meets other parts in the scope that it stands in."""
        ends = self.ends(op, lambda reader: reader.device in (None, op.device) or reader.type in MOVEMENT)
        meets = [self._meets(end, op) for end in islice(ends, 1)]
        return meets == [True] and all(self._meets(end, op) for end in ends)

    def _meets(self, end: Op, op: Op) -> bool:
        """Whether work on several parts, other than a sum, goes on where ``op`` is because a scope says so.

        A sum counts if it adds what the device made of its own part, as where a state is handed on. Of columns of
        unequal width, which are parts of a model and no shards, any join counts.
        """
        if self.family[end.name] != SEVERAL or end.requested is None or end.device != self.place(op):
            return False
        goes_on = any(computes(reader) and reader.device == end.device for reader in self.wiring.followers(end))
        meets = goes_on if end.type in JOINS else computes(end)
        if end.type in _SUMS:
            added = [name for name, _ in self.provenance.sources[end.name] if name in self.family]
            others = [name for name in added if self.family[name] not in (SEVERAL, self.part(op))]
            meets = goes_on and any(self.wiring.by_name[name].device == end.device for name in others)
        return meets or self.differ_in_width

    def ends(self, op: Op, goes_on: Callable[[Op], bool]) -> Iterator[Op]:
        """The forward ops, on this part or on several, with which the work that ``goes_on`` from an op ends."""

        def onward(each: Op) -> list[Op]:
            readers = self.wiring.readers(each)
            return [reader for reader in readers if reader.name in self.family and reader.role != "gradient"]

        def passed(each: Op) -> bool:
            return each is op or (self.family[each.name] != SEVERAL and goes_on(each))

        found = reached([op], lambda each: onward(each) if passed(each) else ())
        return (each for each in found if not passed(each) and each.role in ("forward", "update"))
