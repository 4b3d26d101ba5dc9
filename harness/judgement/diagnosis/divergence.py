"""The first op whose result differs although what it reads is equal: where two programs part.

Both programs run once more in eager code, with each result kept, and the reference also runs on the rows of each shard.
Results are matched by value, never by their order or their names: so a program may be written in other lines than the
reference. From a wrong output the search goes back, op by op, through what has no equal in the reference. Floating
numbers are equal but for rounding, integers and booleans exactly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.devices.name import DeviceName
from harness.judgement.diagnosis.joins import shard_leaves
from harness.judgement.diagnosis.layout import partitions
from harness.judgement.diagnosis.partners import Partner, Partners
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.recorded import MOVES, Step, equal, named, run_recorded
from harness.judgement.diagnosis.siblings import odd_part, rearranging, reordered, unlike_siblings, unread_result
from harness.judgement.diagnosis.wording import listed

_WRITES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")
#: So many lines are named that only move data.
_MOST_LINES = 2
#: What these make does not depend on the numbers that they read.
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})

#: How the sentence about it begins.
FIRST_OP = "the first op whose result differs from the reference's is"
#: ``same``, ``part``, ``local``: as in :class:`Partner`. ``moved``: made of such by an op that only moves data.
#: ``own``: the program's own integers, made of shapes and constants. ``given``: not compared.
_Status = Literal["same", "part", "local", "moved", "own", "given", "differs"]


@dataclass(frozen=True)
class Origin:
    """The op of the program at which it parts from the reference.

    ``unlike`` are ops that made what it reads and that only moved data, or computed integers from shapes: the reference
    has no equal of their results. ``count`` equal results come before. ``expected`` is what the reference runs there.
    ``uncompared``: of something that it reads there is no value, as for want of room. ``contrast`` says how it differs
    from the same op on other devices. ``shared`` are lines that the reference runs too.
    """

    step: Step
    unlike: tuple[Step, ...]
    devices: tuple[str, ...]
    count: int
    local: bool
    expected: Step | None
    uncompared: bool = False
    contrast: str = ""
    shared: frozenset[str] = frozenset()

    @property
    def place(self) -> str | None:
        """Its line, and the one of the program from which it was called."""
        return place_of_step(self.step, self.shared)

    @property
    def joins(self) -> bool:
        """Whether it only joins, or moves, what others made."""
        return self.step.kind in MOVES

    @property
    def elsewhere(self) -> bool:
        """Whether it reads what ops on other lines made, of which the reference has no equal."""
        return any(step.place not in self.step.places for step in self.unlike)


def _lines(step: Step, shared: frozenset[str]) -> tuple[str, ...]:
    """Its line, where the program by itself called what the reference runs too, and the outermost line."""
    own = next((line for line in step.places if line not in shared), "")
    return tuple(dict.fromkeys(line for line in (*step.places[:1], own, *step.places[-1:]) if line))


def place_of_step(step: Step, shared: frozenset[str]) -> str | None:
    """The same as a text."""
    return " from ".join(_lines(step, shared)).replace(" from ", ", called at ", 1) or None


def first_difference(question: Question) -> Iterator[Cause]:
    """Name the first op of the program whose result the reference does not have."""
    origin = origin_of(question)
    if origin is not None:
        refused = f"Ruled out: {', '.join(question.ruled_out)}"
        yield Cause(f"{FIRST_OP} {sentence_of(origin)}", origin.place, tuple(question.wrong), evidence=(refused,))


def located(question: Question, cause: Cause) -> Cause:
    """A cause with the first op that differs, if that is at another line, else with the line that called its own."""
    if cause.sentence.startswith(FIRST_OP):
        return cause
    try:
        search = Search(question)
        only_gradients = all(leaf.part == "gradients" for leaf in question.wrong)
        origin = None if only_gradients or cause.at_join else search.origin()
    except Exception as error:  # noqa: BLE001 - the cause is known, and must not be lost for want of a line
        question.failed.append(f"the first op that differs: {type(error).__name__}: {error}")
        return cause
    known = (
        origin is not None
        and cause.place in _lines(origin.step, origin.shared)
        and not (origin.elsewhere or origin.contrast)
    )
    if origin is None or origin.place is None or known or (origin.joins and not origin.contrast):
        steps = (step for step in search.steps if step.place == cause.place)
        places = {place for step in steps if (place := place_of_step(step, search.shared)) != cause.place}
        cause = replace(cause, place=places.pop()) if len(places) == 1 else cause
        unread = unread_result(search) if cause.at_join else ""
        return replace(cause, sentence=f"{cause.sentence}; no op reads {unread}") if unread else cause
    made = f", which reads what {_listed(origin.unlike)} made" if origin.elsewhere else ""
    made += f": {origin.contrast}" if origin.contrast else ""
    sentence = f"{cause}; the first op that differs is {origin.step.kind}{made}"
    return replace(cause, sentence=sentence, place=origin.place)


def sentence_of(origin: Origin) -> str:
    """Which op, and what is to be said of it, without its place."""
    on = f" on {listed([DeviceName.parse(name).short for name in origin.devices])}" if origin.devices else ""
    text = f"{origin.step.kind}{on}: "
    if origin.local:
        return text + "it computes across the rows of its shard alone, and the reference across those of the batch"
    if origin.unlike:
        text += f"the reference has no equal of what it reads from {_listed(origin.unlike)} either"
    elif origin.contrast:
        return text + origin.contrast
    elif origin.uncompared:
        text += "not all of its inputs were compared"
    else:
        text += f"its inputs are equal{f', as are {origin.count} results before it' if origin.count > 1 else ''}"
    if origin.expected is not None and origin.expected.kind != origin.step.kind:
        text += f"; the reference runs {named(origin.expected)} there"
    return text


def _listed(steps: Iterable[Step]) -> str:
    return listed(list(dict.fromkeys(map(named, steps))))


def origin_of(question: Question) -> Origin | None:
    """Where the wrong outputs and variables begin to differ; ``None`` where that cannot be told."""
    if all(leaf.part == "gradients" for leaf in question.wrong):
        return None
    return Search(question).origin()


class Search:
    """The ops of the program, each with what its results are to the reference."""

    def __init__(self, question: Question) -> None:
        import tensorflow as tf

        self.question = question
        whole, _ = run_recorded(question, question.reference)
        self.steps, outputs = run_recorded(question, question.parallel)
        self.flat = tf.nest.flatten(outputs)
        given = [array for array in question.input_arrays if array is not None]
        given += [leaf.start for leaf in question.leaves if leaf.start is not None]
        self.partners = Partners(given, whole, *_on_shards(question))
        self.whole = whole
        self.inputs = {getattr(leaf, "_id", None) for leaf in question.parallel.leaves()}
        self.maker = {name: step for step in self.steps for name in step.outputs}
        self.order = {id(step): number for number, step in enumerate(self.steps)}
        self.groups = _groups(self.steps)
        self.status: dict[int, _Status] = {}
        self.partner: dict[int, Partner] = {}
        self.from_data: set[int] = {name for name in self.inputs if name is not None}
        self.shared = frozenset(line for step in whole for line in step.places)
        for step in self.steps:
            self.judge(step)
        for name, leaf in self.wrong_outputs():
            # What differs may still be equal to something else in the reference.
            value = self.value(name)
            if leaf.expected is not None and value is not None and not equal(value, leaf.expected):
                self.status[name] = "differs"

    def value(self, name: int) -> Array | None:
        """The value of a tensor that an op made."""
        step = self.maker[name]
        return step.results[step.outputs.index(name)]

    def wrong_outputs(self) -> Iterator[tuple[int, Leaf]]:
        """The tensors of the outputs that differ."""
        import tensorflow as tf

        for leaf in self.question.wrong:
            if leaf.part == "outputs":
                for part in tf.nest.flatten(self.flat[leaf.index], expand_composites=True):
                    if (name := getattr(part, "_id", None)) in self.maker:
                        yield name, leaf

    def judge(self, step: Step) -> None:
        """Say of each result what it is to the reference."""
        data = step.kind == "ReadVariableOp" or any(name in self.from_data for name in step.inputs)
        data = data and step.kind not in _SHAPES
        read = {self.status.get(name, "given") for name in step.inputs}
        for port, (name, array) in enumerate(zip(step.outputs, step.results, strict=True)):
            if data:
                self.from_data.add(name)
            self.status[name] = self.status_of(step, port, array, read, data, name)

    def status_of(
        self, step: Step, port: int, array: Array | None, read: set[_Status], data: bool, name: int
    ) -> _Status:
        """What a result is to the reference."""
        if array is None:
            return "given"
        partner = self.partners.of(array) or self.in_group(step, port)
        if partner is not None:
            self.partner[name] = partner
            return partner.how
        if step.kind in MOVES and "differs" not in read:
            return "local" if "local" in read else "moved"
        return "own" if not data and array.dtype.kind in "iub" else "differs"

    def in_group(self, step: Step, port: int) -> Partner | None:
        """The partner of what the same step makes on all devices together."""
        arrays = [each.results[port] for each in self.groups[id(step)] if port < len(each.results)]
        known = [array for array in arrays if array is not None]
        return self.partners.of_group(known) if len(known) == len(arrays) > 1 else None

    def origin(self) -> Origin | None:
        """The op at which the program parts from the reference."""
        found = self.first(self.roots(), {"differs"})
        if found is None:
            found = self.first(self.roots(), {"differs", "local"})
        elif any(self.status.get(name) == "local" for name in found.inputs):
            found = self.first(found.inputs, {"differs", "local"}) or found
        if found is None:
            return None
        if (odd := odd_part(self, found)) is not None:
            found, contrast = odd
            alike = [found]
        elif found.kind in MOVES and (moving := rearranging(self, found)) is not None:
            found, alike, contrast = moving, [], "its inputs are equal, and the reference does not rearrange them so"
        else:
            contrast = unlike_siblings(self, found)
            alike = [each for each in self.groups[id(found)] if self.is_bad(each)]
        local = all(self.status[name] == "local" for name in found.outputs)
        devices = [each.device for each in alike] if len(alike) < len(self.question.devices) else []
        before = self.steps[: self.order[id(found)]]
        of_variable = found.kind == "ReadVariableOp" or found.kind.startswith("Resource")
        count = sum(step.computes and self.status[step.outputs[0]] in ("same", "part") for step in before)
        return Origin(
            step=found,
            unlike=self.unlike(found),
            devices=tuple(sorted(devices)),
            count=count,
            local=local,
            expected=self.expected_after(found),
            contrast=contrast or self.partial(found),
            shared=self.shared,
            uncompared=of_variable
            or any(self.status.get(name) == "given" and name in self.maker for name in found.inputs),
        )

    def partial(self, step: Step) -> str:
        """Which of the tensors that a step reads is a shard's part of the reference's."""
        if step.kind in MOVES:
            return ""
        parts = [self.maker[name] for name in step.inputs if self.status.get(name) == "part" and name in self.maker]
        moving = [self.maker[name] for name in step.inputs if name in self.maker and reordered(self, name)]
        if moving:
            return f"the rows that it reads are those of the reference in the order of {named(moving[0])}"
        if not parts:
            return ""
        return f"it reads a shard's part of the reference's {parts[0].kind}"

    def is_bad(self, step: Step) -> bool:
        """Whether a result of a step differs, or is computed from the rows of a shard alone."""
        return any(self.status.get(name) in ("differs", "local") for name in step.outputs) or not step.outputs

    def roots(self) -> list[int]:
        """The wrong outputs, and what is written to wrong variables."""
        found = [name for name, _ in self.wrong_outputs()]
        for leaf in self.question.wrong:
            if leaf.part == "state":
                handle = getattr(getattr(self.question.watched[leaf.index], "handle", None), "_id", None)
                found += [name for step in self.writes(handle) for name in step.inputs[1:]]
        return found

    def writes(self, handle: int | None) -> list[Step]:
        """The steps that write to a variable."""
        return [step for step in self.steps if step.kind.startswith(_WRITES) and step.inputs[0] == handle]

    def sources(self, step: Step) -> Iterable[int]:
        """What a step reads; of a variable, what was written to it before."""
        before = self.written(step)
        return step.inputs if not before else [name for each in before for name in each.inputs[1:]]

    def written(self, step: Step) -> list[Step]:
        """Of a read of a variable, the writes before it."""
        writes = self.writes(step.inputs[0]) if step.kind == "ReadVariableOp" else []
        return [each for each in writes if self.order[id(each)] < self.order[id(step)]]

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
        # Of steps that other devices do right, one is at fault; a step may also be another way to the same end.
        found.sort(key=lambda step: (all(self.is_bad(each) for each in self.groups[id(step)]), self.order[id(step)]))
        return found[0] if found else None

    def behind(self, step: Step) -> list[Step]:
        """The steps that only moved data, or made the program's own integers, on the way to what a step reads."""
        found: list[Step] = []
        waiting = [step]
        while waiting:
            for name in waiting.pop().inputs:
                maker = self.maker.get(name)
                if maker is not None and self.status[name] in ("moved", "own") and maker not in found:
                    found.append(maker)
                    waiting.append(maker)
        return sorted(found, key=lambda each: -self.order[id(each)])

    def unlike(self, step: Step) -> tuple[Step, ...]:
        """One of these for each line but the step's own, the last ones first."""
        by_line = {each.place: each for each in reversed(self.behind(step))}
        own = by_line.pop(step.place, None)
        lines = tuple(sorted(by_line.values(), key=lambda each: -self.order[id(each)]))[:_MOST_LINES]
        return lines or ((own,) if own is not None else ())

    def expected_after(self, step: Step) -> Step | None:
        """The op of the reference that computes with what this one reads."""
        tensors = {name for each in (step, *self.behind(step)) for name in each.inputs}
        read = {
            name
            for tensor in tensors
            if (partner := self.partner.get(tensor)) is not None and partner.step is not None
            for name in partner.step.outputs
        }
        if not read:
            return None
        reached = set(read)
        for other in self.whole:
            if reached.intersection(other.inputs):
                if other.kind not in MOVES and other.computes:
                    return other
                reached.update(other.outputs)
        return None


def _on_shards(question: Question) -> tuple[list[list[Step]], list[int]]:
    """The reference's ops for the rows of each shard, and the numbers of rows."""
    layout = next(partitions(question), None)
    if layout is None:
        return [], []
    leaves = question.reference.leaves()
    try:
        runs = [
            replace(question.reference, inputs=question.with_leaves(shard_leaves(leaves, layout, number)), _graphs={})
            for number in range(len(layout.sizes))
        ]
        return [run_recorded(question, run)[0] for run in runs], layout.sizes
    except Exception as error:  # noqa: BLE001 - the user's program may refuse other inputs than its own
        question.failed.append(f"{type(error).__name__}: {error}")
        return [], []


def _groups(steps: Iterable[Step]) -> dict[int, list[Step]]:
    """For each step, by its id, the steps of the same lines on other devices, and itself."""
    count: Counter[Any] = Counter()
    by_key: dict[Any, list[Step]] = defaultdict(list)
    keys = []
    for step in steps:
        line = step.kind, step.places
        keys.append((*line, count[step.device, line]))
        count[step.device, line] += 1
        by_key[keys[-1]].append(step)
    return {id(step): by_key[key] for step, key in zip(steps, keys, strict=True)}
