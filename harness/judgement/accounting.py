"""Weighs what each device did of the work that a program shares out.

What is shared out are the parts of a batch, and the branches that do the same with weights of their own: members of an
ensemble, experts, columns of a layer. What is done with the results of several of them is a join. A device is used if
it does a substantial share of the work, where joins such as sums, means and losses do not count, nor do views, copies,
assertions and optimizers. What TensorFlow left out of a graph counts for the device that was asked for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from harness.devices.device import Devices
from harness.devices.name import DeviceName
from harness.evidence.arithmetic import CALLS, PYTHON, computes
from harness.evidence.op import Op
from harness.evidence.roles import LOOKUPS
from harness.evidence.trace import Trace
from harness.judgement.provenance import SEVERAL, SLICES, Cut, Family, Provenance
from harness.judgement.wiring import Wiring, reached

#: What a device must do at least, as a share of what each would do if all did the same: with weights, and without.
_WITH_WEIGHTS = 0.02
_WITHOUT = 0.1
#: The same of a stage, which all that is computed passes by.
_AS_A_STAGE = 0.01
_REDUCTIONS = frozenset({"All", "Any", "Max", "Mean", "Min", "Prod", "Sum"})
#: What an op works on: its own part, or the results of several parts of a batch, of several arguments, or of others,
#: such as heads.
_OWN, _BATCH, _TOWERS, _OTHERS = "own", "batch", "towers", "others"
#: The same of what is done with the results of several parts.
_AFTER = {_BATCH: 0.5, _TOWERS: 0.5, _OTHERS: 0.1}
#: The share of all work from which on parts are what the program is about.
_SUBSTANTIAL = 0.3
#: Ops that weigh more than others, where the shapes of none are known, and that work with weights.
_HEAVY = ("MatMul", "Einsum", "Conv", "XlaDot")
#: Ops that only view or copy what they get.
_VIEWS = frozenset(
    {"Bitcast", "ConjugateTranspose", "Copy", "DeepCopy", "EnsureShape", "Reverse", "ReverseV2", "Roll", "Transpose"}
)


def is_product(op: Op) -> bool:
    """Whether an op is a product of matrices, or a convolution."""
    return any(word in op.type for word in _HEAVY)


def has_weights(op: Op) -> bool:
    """Whether an op is a product, or a lookup in a table, as the layers of a model are."""
    return op.type in LOOKUPS | SLICES or is_product(op)


class Account:
    """What each device did of the program's forward work."""

    def __init__(self, provenance: Provenance, devices: Devices, trace: Trace) -> None:
        self.provenance = provenance
        self.wiring = provenance.wiring
        self.devices = [device.parsed for device in devices]
        self.trace = trace

    @cached_property
    def work(self) -> list[Op]:
        """The forward work, each op of which depends on what the program gets where there is such work."""
        cut_out = {name for cut in self.cuts if of_a_batch(cut) for name, port in cut.parts if port is None}
        # What looks rows up by what the program gets, such as a shard, is work.
        cut_out = {name for name in cut_out if not self._looks_up(name)}
        no_work = cut_out | checks_of(self.wiring, unread=False)
        found = [
            op
            for op in self.wiring.ops
            if op.role == "forward"
            and computes(op)
            and op.type not in _VIEWS | PYTHON
            and op.name not in no_work
            and op.name in self.places
        ]
        found = [op for op in found if op.name not in self.optimizer] or found
        given = [op for op in found if op.name in self._dependent]
        return given if sum(map(self.weight, given)) > sum(map(self.weight, found)) / 2 else found

    def _looks_up(self, name: str) -> bool:
        """Whether the rows that an op picks depend on what the program gets."""
        at = self.provenance.sources.get(name, [])[1:]
        return any(each in self._given or each.startswith("argument[") for each, _ in at)

    @cached_property
    def cuts(self) -> list[Cut]:
        """The parts that the program cuts its tensors into."""
        return list(self.provenance.cuts())

    def depends(self, op: Op) -> bool:
        """Whether an op depends on an argument of the program, or on its data."""
        return op.name in self._given

    def leads_to(self, op: Op) -> set[str]:
        """The ops that read what an op makes, whether first or later."""
        return self._behind(lambda each: each is op) - {op.name}

    @cached_property
    def _given(self) -> set[str]:
        return self._behind(lambda op: op.role == "data" or self._reads_argument(op))

    @cached_property
    def _dependent(self) -> set[str]:
        """The ops that depend on an argument, on data, or on a variable."""
        roles = ("variable", "data")
        return self._behind(lambda op: op.role in roles or op.type in LOOKUPS or self._reads_argument(op))

    def _reads_argument(self, op: Op) -> bool:
        return any(name.startswith("argument[") for name, _ in self.provenance.sources[op.name])

    def _behind(self, starts: Callable[[Op], bool]) -> set[str]:
        """The ops for which ``starts`` is true, and those that depend on them."""
        readers: dict[str, list[Op]] = defaultdict(list)
        for op in self.wiring.ops:
            for name, _ in self.provenance.sources[op.name]:
                readers[name].append(op)
        return {op.name for op in reached(filter(starts, self.wiring.ops), lambda op: readers[op.name])}

    @cached_property
    def optimizer(self) -> set[str]:
        """What is done to gradients, up to the next product: that works on a model again."""
        start = [op for op in self.wiring.ops if op.role == "gradient"]

        def onward(op: Op) -> Iterator[Op]:
            return (each for each in self.wiring.readers(op) if each.role != "forward" or not has_weights(each))

        return {op.name for op in reached(start, onward) if op.role in ("forward", "control")}

    def weight(self, op: Op) -> float:
        """How much an op works, by its shapes or, where they are unknown, by its type."""
        if self._sized:
            return self.trace.work.get(op.name) or 1.0
        return 100.0 if is_product(op) else 1.0

    @cached_property
    def _sized(self) -> bool:
        """Whether the size of all work is known: in a graph, that on rows that it picks is not."""
        known = [op for op in self.wiring.ops if op.role == "forward" and computes(op) and op.device is not None]
        return bool(known) and all(self.trace.work.get(op.name) for op in known)

    @cached_property
    def places(self) -> Mapping[str, DeviceName]:
        """Where the forward work was done, by the names of the ops, as far as it was done."""
        found = ((op.name, self._place(op)) for op in self.wiring.ops if op.role == "forward" and computes(op))
        return {name: place for name, place in found if place is not None}

    def _place(self, op: Op) -> DeviceName | None:
        """Where an op ran; of one that was left out, although it is read, the device that was asked for it."""
        if op.device is not None and not self.wiring.rearranged(op):
            return op.device
        if op.requested is not None and op.requested.index is not None:
            asked = [device for device in self.devices if device.matches(op.requested)]
            if asked and (self.wiring.users(op) or asked[0] in self._backward.get(op.name, ())):
                return asked[0]
        users = self.wiring.users(op)
        return users.pop() if op.requested is None and len(users) == 1 else None

    @cached_property
    def _backward(self) -> Mapping[str | None, set[DeviceName | None]]:
        """Where the backward ops of each forward op ran."""
        places: dict[str | None, set[DeviceName | None]] = defaultdict(set)
        for op in self.wiring.ops:
            if op.role == "gradient":
                places[op.forward].add(op.device)
        return places

    @cached_property
    def branches(self) -> list[Family]:
        """The families of ops that do the same independently of each other, where no cut tells them apart."""
        groups: dict[int, list[Op]] = defaultdict(list)
        for op in self.work:
            groups[self.kinds[op.name]].append(op)
        families = []
        covered: set[str] = set()
        for group in groups.values():
            if len(group) < 2 or not any(map(has_weights, group)) or covered.issuperset(op.name for op in group):
                continue
            parts: dict[tuple[str, int | None], int] = {(op.name, None): index for index, op in enumerate(group)}
            if any(_apart(cut.family, group) for cut in self.cuts):
                continue
            family = self.provenance.followed(parts)
            covered.update(name for name, part in family.items() if part != SEVERAL)
            families.append(family)
        return families

    @cached_property
    def kinds(self) -> Mapping[str, int]:
        """What each op does: the same for two ops if the same types of ops lead to them."""
        kinds: dict[str, int] = {}
        sources = self.provenance.sources
        for first in self.wiring.ops:
            stack = [(first.name, False)]
            while stack:
                name, ready = stack.pop()
                op = self.wiring.by_name.get(name)
                if name in kinds or op is None:
                    continue
                if ready:
                    behind = [kinds.get(source, 0) for source, _ in sources[name]]
                    kinds[name] = hash((op.type, tuple(behind)))
                else:
                    stack.append((name, True))
                    stack += [(source, False) for source, _ in sources[name] if source not in kinds]
        return kinds

    @cached_property
    def _towers(self) -> Family:
        """What works on each of the arguments that weights work on alone, as each tower of a recommender does."""
        sources = self.provenance.sources.values()
        names = dict.fromkeys(name for each in sources for name, _ in each if name.startswith("argument["))
        parts: dict[tuple[str, int | None], int] = {(name, None): index for index, name in enumerate(names)}
        family = self.provenance.followed(parts)
        weighty = {family[op.name] for op in self.work if op.name in family and has_weights(op)} - {SEVERAL}
        return self.provenance.followed({each: part for each, part in parts.items() if part in weighty})

    def has_own_weights(self, op: Op) -> bool:
        """Whether an op works with weights that no argument leads to: a product of two results has none."""
        given = [name in self._given or "argument[" in name for name, _ in self.provenance.sources[op.name]]
        if op.type in LOOKUPS | SLICES:
            return len(given) < 2 or not given[0]  # what it looks up in
        return is_product(op) and sum(given) < 2

    def weights_of(self, op: Op) -> set[int]:
        """The variables whose values an op works with, seen through views and copies."""
        found = set(self.trace.variables.get(op.name, ())) if op.type in LOOKUPS else set[int]()
        for name, port in self.provenance.sources[op.name]:
            found.update(self.trace.variables.get(self.provenance.base(name, port)[0], ()))
        return found

    @cached_property
    def _joins(self) -> dict[str, str]:
        """The ops that work on several parts alone, and what these are parts of."""
        total = sum(map(self.weight, self.work))
        families = [(each, _OTHERS) for each in self.branches]
        families += [(cut.family, _kind_of(cut)) for cut in self.cuts]
        joins: dict[str, str] = {}
        own: set[str] = set()
        for family, whole in ((self._towers, _TOWERS), *families):
            alone = [op for op in self.work if family.get(op.name, SEVERAL) != SEVERAL]
            if family is not self._towers:
                own.update(op.name for op in alone)
            if sum(map(self.weight, alone)) >= _SUBSTANTIAL * total:
                for name, part in family.items():
                    if part == SEVERAL and joins.get(name) != _BATCH:
                        joins[name] = whole
        return {name: whole for name, whole in joins.items() if name not in own}

    @cached_property
    def _stages(self) -> set[str]:
        """The work on several parts that one device alone works on, each by itself: it is a stage in chunks."""
        chunks = []
        for cut in self.cuts:
            alone = [op for op in self.work if cut.family.get(op.name, SEVERAL) != SEVERAL]
            if any(map(self.has_own_weights, alone)) and len({self.places[op.name] for op in alone}) == 1:
                chunks.append(cut.family)
        return {name for family in chunks for name, part in family.items() if part == SEVERAL}

    @property
    def shares_out_columns(self) -> bool:
        """Whether several devices share out columns, such as heads, and no rows: these do not say for how many.

        So do branches with weights of their own, such as experts.
        """
        families = [cut.family for cut in self.cuts if not of_a_batch(cut)] + self.branches
        columns = [family for family in families if len({*family.values()} - {SEVERAL}) >= len(self.devices)]
        alone = ([name for name, part in family.items() if part != SEVERAL] for family in columns)
        places = [{self.places.get(name) for name in names} - {None} for names in alone]
        return any(len(each) > 1 for each in places) and not any(map(of_a_batch, self.cuts))

    @cached_property
    def shares(self) -> Mapping[DeviceName, float]:
        """What each device did, as a share of what each of the devices would do if all did the same."""
        even = sum(map(self.weight, self.work)) / len(self.devices) or 1.0
        shares: dict[DeviceName, float] = defaultdict(float)
        for op in self.work:
            shares[self.places[op.name]] += self.weight(op) / even
        return shares

    @cached_property
    def used(self) -> set[DeviceName]:
        """The devices that did a substantial share."""
        weighty = any(has_weights(op) for op in self.work if op.name not in self._joins)
        even = sum(map(self.weight, self.work)) / len(self.devices) or 1.0
        done: dict[DeviceName, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        with_weights: set[tuple[DeviceName, str]] = set()
        for op in self.work:
            place, kind = self.places[op.name], self._joins.get(op.name, _OWN)
            weights = has_weights(op) if kind == _OWN else self.has_own_weights(op)
            if weights and (kind == _TOWERS or op.name in self._stages):
                kind = _OWN  # a layer on what the towers made, or a stage after one that works in chunks
            done[place][kind] += self.weight(op) / even
            if weights:
                with_weights.add((place, kind))
        used = set()
        for place, kinds in done.items():
            for kind, share in kinds.items():
                if kind == _OWN:
                    least = _WITH_WEIGHTS if (place, kind) in with_weights else _WITHOUT
                elif weighty and kind != _TOWERS and (place, kind) not in with_weights:
                    continue
                else:
                    least = _AFTER[kind]
                if share >= least or (kind == _OWN and share >= _AS_A_STAGE and self._is_stage(place)):
                    used.add(place)
        return used | self._deciding

    @cached_property
    def _deciding(self) -> set[DeviceName]:
        """The devices that do all that is done on their part, as far as Python reads from it what there is to do.

        In eager code a loop on the values of a part may end at once.
        """
        families = [cut.family for cut in self.cuts]
        found = set()
        for op in self.work:
            if op.dtypes == ("bool",) and "/" not in op.name and self.depends(op) and not self.wiring.readers(op):
                place = self.places[op.name]
                own = [(family, part) for family in families if (part := family.get(op.name, SEVERAL)) != SEVERAL]
                parts = [each for each in self.work if any(family.get(each.name) == part for family, part in own)]
                if own and all(self.places[each.name] == place for each in parts):
                    found.add(place)
        return found

    def _is_stage(self, place: DeviceName) -> bool:
        """Whether a device changes all that passes by, and does not only make less of it, as a loss does.

        What is true or false, as whether a loop goes on, is neither.
        """
        own = [op for op in self.work if self.places[op.name] == place and op.name not in self._joins]
        own = [op for op in own if op.dtypes != ("bool",)]
        if not own or any(op.type in _REDUCTIONS for op in own):
            return False
        families = [cut.family for cut in self.cuts] + self.branches
        for family in families:
            parts = {part for part in family.values() if part != SEVERAL}
            done = {family[op.name] for op in own if op.name in family} - {SEVERAL}
            if done and done != parts:
                return False
        return True


def of_a_batch(cut: Cut) -> bool:
    """Whether parts are those of an argument of the program, or of its data."""
    return cut.whole is None or cut.whole.startswith("argument[")


def _kind_of(cut: Cut) -> str:
    """What the parts are parts of. Arguments may be the parts of a batch, or what a model compares with each other."""
    if any(name.startswith("argument[") for name, _ in cut.parts):
        return _TOWERS
    return _BATCH if of_a_batch(cut) else _OTHERS


def _apart(family: Family, group: list[Op]) -> bool:
    """Whether each op of a group works on a part of its own."""
    parts = {family.get(op.name, SEVERAL) for op in group}
    return len(parts) == len(group) and SEVERAL not in parts


def checks_of(wiring: Wiring, *, unread: bool = True) -> set[str]:
    """The ops whose results only assertions read, which may stand anywhere.

    In eager code an assertion is Python's, and reads a truth value that no op reads: with ``unread``, such count too.
    """
    found = {
        op.name
        for op in wiring.ops
        if op.type == "Assert"
        or (unread and (op.type == "CheckNumerics" or op.dtypes == ("bool",)) and not wiring.is_read(op))
    }
    if found:
        # An assertion in a graph stands in a call that does nothing else.
        guards = [op.name for op in wiring.ops if op.type in CALLS]
        guards = [name for name in guards if any(each.startswith(f"{name}/") for each in found)]
        guards = [name for name in guards if not wiring.work_in(name)]
        inside = tuple(f"{name}/" for name in guards)
        found |= {op.name for op in wiring.ops if op.name in guards or op.name.startswith(inside)}
    for op in reversed(wiring.ops if found else ()):
        readers = wiring.readers(op)
        if readers and all(reader.name in found for reader in readers):
            found.add(op.name)
    return found
