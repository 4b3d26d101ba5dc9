"""What each result of the program is to the reference: the same, rows of it, a shard's part, or something else.

Both programs run once more in eager code, with each result kept, and the reference also runs on the rows of each shard.
Results are matched by value, never by their order or their names: so a program may be written in other lines than the
reference. Floating numbers are equal but for rounding, integers and booleans exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np

from harness.judgement.diagnosis.joins import Join, groups_of, on_shards
from harness.judgement.diagnosis.layout import partitions
from harness.judgement.diagnosis.leaves import handle_of
from harness.judgement.diagnosis.lookup import Rows
from harness.judgement.diagnosis.partners import Partner, Partners
from harness.judgement.diagnosis.question import Array, Leaf, Question
from harness.judgement.diagnosis.recorded import MOVES, Step, equal, is_common, run_recorded, writes_to
from harness.judgement.runs import projections
from harness.lazy import tf

#: What these make does not depend on the numbers that they read.
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
#: Constants with fewer elements are rather shapes than data.
_FEW = 8
#: ``same``, ``part``, ``local``: as in :class:`Partner`. ``moved``: made of such by an op that only moves data.
#: ``own``: the program's own integers, made of shapes and constants. ``given``: not compared.
_Status = Literal["same", "part", "local", "moved", "own", "given", "differs"]


def searched(question: Question) -> Search:
    """The search for a question; it is made once for the same differing results."""
    key = "search", *(id(leaf) for leaf in question.wrong)
    if key not in question.shards:
        question.shards[key] = Search(question)
    search: Search = question.shards[key]
    return search


class Search:
    """The ops of the program, each with what its results are to the reference."""

    def __init__(self, question: Question) -> None:
        self.question = question
        backward = question.only_gradients
        whole, expected, _ = run_recorded(question, question.reference, gradients=backward)
        self.steps, outputs, gradients = run_recorded(question, question.parallel, gradients=backward)
        self.flat, self.gradients = tf.nest.flatten(outputs), gradients
        given = [array for array in question.input_arrays if array is not None]
        starts = [question.snapshot.starts.get(id(variable)) for variable in question.watched]
        given += [start for start in starts if isinstance(start, np.ndarray)]
        # What is captured has rows too, such as labels.
        rows = {array.shape[0] for array in question.input_arrays if array is not None and array.ndim}
        captured = [array for step in whole for array in step.constants.values()]
        given += [array for array in captured if array.size > _FEW and array.shape[0] in rows]
        #: The gradients of the outputs.
        self.upstream = projections(expected, question.reference.seed) if backward else []
        given += self.upstream
        self.partners = Partners(given, whole, *on_shards(question, backward=backward))
        self.whole = whole
        self.inputs = {leaf._id: leaf for leaf in question.parallel.leaves() if hasattr(leaf, "_id")}
        #: What made a tensor of the program, and one of either program.
        self.maker = {name: step for step in self.steps for name in step.outputs}
        self.makers = self.maker | {name: step for step in whole for name in step.outputs}
        self.order = {id(step): number for number, step in enumerate(self.steps)}
        self.groups = groups_of(self.steps)
        #: The partner of what each group of steps makes together, by the first of them and the number of the result.
        self._of_groups: dict[tuple[int, int, bool], Partner | None] = {}
        self.status: dict[int, _Status] = {}
        self.partner: dict[int, Partner] = {}
        #: Which rows of a result of the reference a tensor has, and indices that are counted within a part.
        self.rows: dict[int, Rows] = {}
        self.offsets: set[int] = set()
        layout = next(partitions(question), None)
        devices = [device.parsed.short for device in question.devices]
        self.shards = (layout.axis, dict(zip(devices, layout.shards, strict=False))) if layout is not None else (0, {})
        self.from_data: set[int] = {*self.inputs}
        #: For each sum of shards' parts that are added one after the other: the parts in it.
        self.sums: dict[int, list[int]] = {}
        #: What an op gives from the reference's inputs, where that is right, and differs from what it gave.
        self.replaced: dict[int, Array] = {}
        self.shared = frozenset(line for step in whole for line in step.places)
        for step in self.steps:
            self.judge(step)
        self.acquit_parts()
        for name, leaf in self.wrong_outputs():
            # What differs may still be equal to something else in the reference.
            value = self.value(name)
            if leaf.expected is not None and value is not None and not equal(value, leaf.expected):
                self.status[name] = "differs"

    def value(self, name: int) -> Array | None:
        """The value of a tensor that an op of either program made, if it is known."""
        step = self.makers.get(name)
        return None if step is None else step.results[step.outputs.index(name)]

    def read(self, step: Step, number: int) -> Array | None:
        """The value of an input of a step of either program, if it is known."""
        name = step.inputs[number]
        if name in self.inputs:
            return np.asarray(self.inputs[name].numpy())
        return step.constants.get(number, self.value(name))

    def wrong_outputs(self) -> Iterator[tuple[int, Leaf]]:
        """The tensors of the outputs, and of the gradients, that differ."""
        made = {"outputs": self.flat, "gradients": self.gradients}
        for leaf in self.question.wrong:
            if leaf.part in made and leaf.index < len(made[leaf.part]):
                for part in tf.nest.flatten(made[leaf.part][leaf.index], expand_composites=True):
                    if (name := getattr(part, "_id", None)) in self.maker:
                        yield name, leaf

    def wrong_variables(self) -> Iterator[tuple[Leaf, int]]:
        """The variables that differ, with their handles."""
        for leaf in self.question.wrong:
            if leaf.part == "state":
                yield leaf, handle_of(self.question.watched[leaf.index])

    def read_there(self, step: Step) -> set[int]:
        """The results of the reference's ops that have what a step reads."""
        partners = (self.partner.get(name) for name in step.inputs)
        return {name for known in partners if known and known.step is not None for name in known.step.outputs}

    def judge(self, step: Step) -> None:
        """Say of each result what it is to the reference."""
        data = step.kind == "ReadVariableOp" or any(name in self.from_data for name in step.inputs)
        data = data and step.kind not in _SHAPES
        if self.offsets.intersection(step.inputs) or (data and self.makes_offsets(step)):
            self.offsets.update(step.outputs)
        read = {self.status.get(name, "given") for name in step.inputs}
        for port, (name, array) in enumerate(zip(step.outputs, step.results, strict=True)):
            if data:
                self.from_data.add(name)
            self.status[name] = self.status_of(step, port, array, read, data, name)
        known = [partner for name in step.outputs if (partner := self.partner.get(name)) is not None]
        if any(partner.step is not None and partner.step.kind == step.kind for partner in known):
            # Of numbers that are right, the positions count in what they were chosen from.
            whole = zip(step.outputs, step.results, strict=True)
            own = [name for name, array in whole if array is not None and array.dtype.kind in "iu"]
            self.status.update((name, "own") for name in own if self.status[name] == "differs")

    def status_of(
        self, step: Step, port: int, array: Array | None, read: set[_Status], data: bool, name: int
    ) -> _Status:
        """What a result is to the reference."""
        if array is None:
            return "given"
        likely = self.likely(step, port)
        partner = self.partners.of(array, likely)
        read_rows = {self.rows[each].numbers for each in step.inputs if each in self.rows}
        if partner is not None and partner.rows is not None and step.kind in MOVES and is_common(array):
            all_read = {row for rows in read_rows for row in rows}
            within = [all_read] if all_read else [{*rows.numbers} for rows in likely]
            partner = partner if any(within_these.issuperset(partner.rows.numbers) for within_these in within) else None
        elif partner is not None and partner.rows is not None and step.kind not in MOVES:
            single = array.dtype.kind == "b" or array.ndim < 2 or is_common(array)
            # Single numbers, and rows chosen by a wrong index, are found anywhere: they have to be those of the inputs.
            strays = (single and len(read_rows) == 1) or (
                "differs" in read and not self.offsets.intersection(step.inputs)
            )
            partner = None if strays and partner.rows.numbers not in read_rows else partner
        if not data and partner is not None and partner.how == "local" and array.dtype.kind in "iu":
            return "own"  # made of shapes, such as a number of rows
        partner = partner or self.in_group(step, port)
        if partner is not None:
            self.partner[name] = partner
            if partner.rows is not None:
                self.rows[name] = partner.rows
            return partner.how
        if step.kind in MOVES and "differs" not in read:
            return "local" if "local" in read else "moved"
        if self.is_finer(step, array) or self.is_averaged(step):
            return "part"
        if self.adds_parts(step, name):
            return "moved"
        own = not data or name in self.offsets
        return "own" if own and array.dtype.kind in "iub" else "differs"

    def acquit_parts(self) -> None:
        """Say that what each shard computes by itself is a part, where the program makes the reference's result of it.

        The best of the best of each part are the best of all, say.
        """
        for step in self.steps:
            made = {
                id(known.step) for name in step.outputs if (known := self.partner.get(name)) and known.how == "same"
            }
            local = self.tensors_behind(step, self._is_local_move) if step.computes else ()
            parts = [name for name in local if self.status[name] == "local"]
            sources = [name for name in parts if self.maker[name].kind not in MOVES]
            if made.intersection(id(known.step) for name in sources if (known := self.partner.get(name))):
                parts += [each for name in sources for each in self.maker[name].outputs]
                self.status.update((name, "moved" if self.maker[name].kind in MOVES else "part") for name in parts)

    def _is_local_move(self, name: int) -> bool:
        return self.status[name] == "local" and self.maker[name].kind in MOVES

    def makes_offsets(self, step: Step) -> bool:
        """Whether a step makes integers of the data with another constant on each device, as indices in a part are."""
        group = self.groups[id(step)]
        if len(group) < 2 or any(result is None or result.dtype.kind not in "iu" for result in step.results):
            return False
        return any(
            len({each.constants[number].tobytes() for each in group if number in each.constants}) == len(group)
            for number in step.constants
            if step.inputs[number] not in self.from_data
        )

    def is_finer(self, step: Step, array: Array) -> bool:
        """Whether a step adds up rows of a part of a shard, as of a micro-batch: the reference has no equal of that."""
        read = {self.rows[name].numbers for name in step.inputs if name in self.rows}
        shard = set(self.rows_of_device(step))
        known = all(self.status.get(name, "given") in ("same", "given") for name in step.inputs)
        return known and len(read) == 1 and shard > set(*read) and len(*read) not in array.shape[:1]

    def is_averaged(self, step: Step) -> bool:
        """Whether a step adds up what the reference averages: it may divide later."""
        known = self.partner.get(step.inputs[0]) if step.kind == "Sum" and not step.gradient_of else None
        made = known.step.outputs if known is not None and known.step is not None else ()
        return any(each.kind == "Mean" and each.inputs[0] in made for each in self.whole if made)

    def adds_parts(self, step: Step, name: int) -> bool:
        """Whether a step adds the parts of two shards, or a part to such a sum."""
        if step.kind != "AddV2":
            return False
        # Python's sum begins with 0.
        read = [each for number, each in enumerate(step.inputs) if np.any(step.constants.get(number, 1))]
        added = [each for before in read for each in self.sums.get(before, [before])]
        shapes = {part.shape for each in added if (part := self.value(each)) is not None}
        if any(self.status.get(each) != "part" for each in added) or len(shapes) > 1:
            return False
        # On one device, it is rather the shard's own work.
        apart = len({step.device, *(self.maker[each].device for each in added)}) > 1
        if len(added) > 1 and not (apart and all(map(self.may_be_added, added))):
            return False
        self.sums[name] = added
        return True

    def may_be_added(self, name: int) -> bool:
        """Whether the sum over shards can be right: this part is not the reference's for its shard, or the sum is."""
        array, partner = self.value(name), self.partner.get(name)
        step = partner.step if partner is not None else None
        if array is None or step is None or step.gradient_of or not self.partners.aligned:
            return True
        parts = self.partners.parts(self.whole.index(step))
        is_own = any(equal(array, part) for part in parts)
        return not is_own or equal(Join("sum").of(parts, self.partners.sizes), step.results[0])

    def addends(self, step: Step) -> list[int]:
        """List what a step reads; where it reads or makes a sum of shards' parts, the parts."""
        known = next((self.sums[name] for name in step.outputs if name in self.sums), None)
        sums = self.sums if step.kind == "AddN" else {}
        return known or [each for name in step.inputs for each in sums.get(name, [name])]

    def has(self, step: Step, arrays: Sequence[Array | None], *ways: str) -> bool:
        """Whether all of these arrays, which a step would give, are to the reference what ``ways`` says."""
        known = [
            self.partners.of(array, self.likely(step, port)) if array is not None else None
            for port, array in enumerate(arrays)
        ]
        return bool(known) and all(each is not None and each.how in ways for each in known)

    def likely(self, step: Step, port: int) -> list[Rows]:
        """The rows that a result may well have: those of what the step reads, then those of its device's shard."""
        axis, shards = self.shards
        read = [self.rows[name] for name in step.inputs if name in self.rows]
        own = [self.rows_of_device(step)]
        if step.kind in MOVES and not read:
            each = list(shards.values())
            own = [*each[port:], *own, *each[:port]]
        return [*read, *(Rows(axis, rows, 0) for rows in own if rows)]

    def rows_of_device(self, step: Step) -> tuple[int, ...]:
        """The rows of the batch that belong on the device of a step."""
        return self.shards[1].get(step.on, ())

    def in_group(self, step: Step, port: int) -> Partner | None:
        """The partner of what the same step makes on all devices together."""
        group = self.groups[id(step)]
        key = (id(group[0]), port, bool(step.gradient_of))
        if key not in self._of_groups:
            arrays = [each.results[port] for each in group if port < len(each.results)]
            known = [array for array in arrays if array is not None]
            several = len(known) == len(arrays) > 1
            self._of_groups[key] = self.partners.of_group(known, backward=bool(step.gradient_of)) if several else None
        return self._of_groups[key]

    def is_bad(self, step: Step) -> bool:
        """Whether a result of a step differs, or is computed from the rows of a shard alone."""
        return any(self.status.get(name) in ("differs", "local") for name in step.outputs) or not step.outputs

    def acquits(self, step: Step, made: Sequence[Array]) -> bool:
        """Whether a step is right: what it gives from the reference's inputs, ``made``, the reference has.

        It then is not searched again: what it gave differs because rounding of what it reads grows in it.
        """
        partners = [self.partners.of(array, self.likely(step, port)) for port, array in enumerate(made)]
        if step.gave(made) or not made or any(partner is None or partner.how == "local" for partner in partners):
            return False
        for name, array, partner in zip(step.outputs, made, partners, strict=True):
            assert partner is not None
            self.status[name], self.partner[name], self.replaced[name] = partner.how, partner, array
            if partner.rows is not None:
                self.rows[name] = partner.rows
        return True

    def is_bad_elsewhere(self, step: Step, rows: Sequence[int]) -> bool:
        """Whether a step that differs on several devices does so on one with none of these rows of the batch."""
        group = self.groups[id(step)]
        places = [own for each in group if self.is_bad(each) and (own := self.rows_of_device(each))]
        return len(places) > 1 and any(set(own).isdisjoint(rows) for own in places)

    def roots(self) -> list[int]:
        """The wrong outputs, and what is written to wrong variables."""
        writes = (step for _, handle in self.wrong_variables() for step in writes_to(handle, self.steps))
        return [*(name for name, _ in self.wrong_outputs()), *(name for step in writes for name in step.inputs[1:])]

    def sources(self, step: Step) -> Iterable[int]:
        """What a step reads; of a variable, what was written to it before."""
        before = self.written(step)
        read = () if step.kind == "ReadVariableOp" and before else step.inputs
        return [*read, *(name for each in before for name in each.inputs[1:])]

    def written(self, step: Step) -> list[Step]:
        """Of a read of a variable, the writes before it."""
        writes = [each for handle in self.variables_of(step) for each in writes_to(handle, self.steps)]
        return [each for each in writes if self.order[id(each)] < self.order[id(step)]]

    def variables_of(self, step: Step) -> Iterator[int | None]:
        """The variable that a step reads; an op that is given one reads it unseen, and its values tell which."""
        if step.kind == "ReadVariableOp":
            yield step.inputs[0]
        values = [value for value in step.constants.values() if value.size > 1]
        for leaf, handle in self.wrong_variables() if values else ():
            found = leaf.found
            if found is not None and any(value.dtype == found.dtype and equal(value, found) for value in values):
                yield handle

    def first(self, roots: Iterable[int], bad: set[str]) -> Step | None:
        """The first step behind these tensors whose result is bad and that reads nothing bad."""
        waiting = [name for name in roots if self.status.get(name) in bad]
        seen: set[int] = set()
        found: list[Step] = []
        while waiting:
            step = self.maker[waiting.pop()]
            if id(step) in seen:
                continue
            seen.add(id(step))
            behind = [name for name in self.sources(step) if self.status.get(name) in bad]
            waiting += behind
            if not behind:
                found.append([step, *self.written(step)][-1])
        # A step that all devices run alike may be another way to the same end.
        found.sort(key=lambda step: (not self.alone(step), self.order[id(step)]))
        return found[0] if found else None

    def alone(self, step: Step) -> bool:
        """Whether other devices do this step right, or do not run it for their rows."""
        group = self.groups[id(step)]
        if not all(self.is_bad(each) for each in group):
            return True
        of_shard = any(self.status.get(name) == "part" or self.is_of_rows(name) for name in step.inputs)
        return of_shard and len({each.device for each in group}) < len(self.question.devices)

    def is_of_rows(self, name: int) -> bool:
        """Whether a tensor has some of the rows of a result of the reference."""
        return name in self.rows and len({*self.rows[name].numbers}) < self.rows[name].of

    def tensors_behind(self, step: Step, through: Callable[[int], bool]) -> Iterator[int]:
        """What a step reads from other steps; and what these read, if ``through`` is true of the tensor."""
        waiting, seen = [step], set[int]()
        while waiting:
            for name in waiting.pop().inputs:
                if name in self.maker and name not in seen:
                    seen.add(name)
                    yield name
                    if through(name):
                        waiting.append(self.maker[name])

    def behind_moves(self, step: Step) -> Iterator[int]:
        """What a step reads from other steps; and what these read, if they only move data."""
        return self.tensors_behind(step, lambda name: self.maker[name].kind in MOVES)

    def behind(self, step: Step) -> list[Step]:
        """The steps that only moved data, or made the program's own integers, on the way to what a step reads."""

        def is_passed(name: int) -> bool:
            return self.status[name] in ("moved", "own")

        found = {self.maker[name] for name in self.tensors_behind(step, is_passed) if is_passed(name)}
        return sorted(found, key=lambda each: -self.order[id(each)])
