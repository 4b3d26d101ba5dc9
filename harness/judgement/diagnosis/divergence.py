"""The first op whose result differs although what it reads is equal: where two programs part.

Both programs run once more in eager code, with each result kept, and the reference also runs on the rows of each shard.
Results are matched by value, never by their order or their names: so a program may be written in other lines than the
reference. From a wrong output the search goes back, op by op, through what has no equal in the reference. Floating
numbers are equal but for rounding, integers and booleans exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from harness.judgement.diagnosis.origins import Origin, lines_of_step, named_steps, place_of_step, sentence_of
from harness.judgement.diagnosis.partners import Partner, Partners
from harness.judgement.diagnosis.question import Array, Cause, Leaf, Question
from harness.judgement.diagnosis.recorded import MOVES, Step, equal, named, run_recorded, titled
from harness.judgement.diagnosis.shard_runs import groups_of, on_shards
from harness.judgement.diagnosis.siblings import (
    odd_part,
    rearranging,
    reordered,
    stopped_gradient,
    unlike_siblings,
    unread_result,
    zeros_instead,
)
from harness.judgement.runs import projections

_WRITES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")
#: So many lines are named that only move data.
_MOST_LINES = 2
#: What these make does not depend on the numbers that they read.
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})

#: How the sentence about it begins.
FIRST_OP = "the first op whose result differs from the reference's is"
#: How the sentence about a gradient that is lost begins.
STOP = "the gradient stops at"
#: ``same``, ``part``, ``local``: as in :class:`Partner`. ``moved``: made of such by an op that only moves data.
#: ``own``: the program's own integers, made of shapes and constants. ``given``: not compared.
_Status = Literal["same", "part", "local", "moved", "own", "given", "differs"]


def first_difference(question: Question) -> Iterator[Cause]:
    """Name the first op of the program whose result the reference does not have, or that passes no gradient on."""
    search = Search(question)
    origin = search.origin()
    refused = question.refused
    if (stop := search.stop(origin)) is not None:
        step, sentence = stop
        yield Cause(sentence, place_of_step(step, search.shared), tuple(question.wrong), evidence=(refused,))
    elif origin is not None:
        yield Cause(f"{FIRST_OP} {sentence_of(origin)}", origin.place, tuple(question.wrong), evidence=(refused,))


def located(question: Question, cause: Cause) -> Cause:
    """A cause with the first op that differs, if that is at another line, else with the line that called its own."""
    if cause.sentence.startswith((FIRST_OP, STOP)):
        return cause
    try:
        search = Search(question)
        origin = search.origin()
        stop = search.stop(origin)
    except Exception as error:  # noqa: BLE001 - the cause is known, and must not be lost for want of a line
        question.failed.append(f"the first op that differs: {type(error).__name__}: {error}")
        return cause
    if stop is None and cause.at_join:
        stop = zeros_instead(search)
    if stop is not None:
        step, sentence = stop
        if cause.place in lines_of_step(step, search.shared):
            return replace(cause, place=place_of_step(step, search.shared))
        return replace(cause, sentence=f"{cause}; {sentence}", place=place_of_step(step, search.shared))
    if cause.at_join:
        origin = None
    known = (
        origin is not None
        and cause.place in lines_of_step(origin.step, origin.shared)
        and not (origin.elsewhere or origin.contrast)
    )
    if origin is None or origin.place is None or known or (origin.joins and not origin.contrast):
        steps = (step for step in search.steps if step.place == cause.place)
        places = {place for step in steps if (place := place_of_step(step, search.shared)) != cause.place}
        cause = replace(cause, place=places.pop()) if len(places) == 1 else cause
        unread = unread_result(search) if cause.at_join else ""
        return replace(cause, sentence=f"{cause.sentence}; no op reads {unread}") if unread else cause
    made = f", which reads what {named_steps(origin.unlike)} made" if origin.elsewhere else ""
    made += f": {origin.contrast}" if origin.contrast else ""
    sentence = f"{cause}; the first op that differs is {titled(origin.step)}{made}"
    return replace(cause, sentence=sentence, place=origin.place)


class Search:
    """The ops of the program, each with what its results are to the reference."""

    def __init__(self, question: Question) -> None:
        import tensorflow as tf

        self.question = question
        backward = question.only_gradients
        whole, expected, _ = run_recorded(question, question.reference, gradients=backward)
        self.steps, outputs, gradients = run_recorded(question, question.parallel, gradients=backward)
        self.flat, self.gradients = tf.nest.flatten(outputs), gradients
        given = [array for array in question.input_arrays if array is not None]
        given += [leaf.start for leaf in question.leaves if leaf.start is not None]
        if backward:
            given += projections(expected, question.reference.seed)
        self.partners = Partners(given, whole, *on_shards(question, backward=backward))
        self.whole = whole
        self.inputs = {getattr(leaf, "_id", None) for leaf in question.parallel.leaves()}
        self.maker = {name: step for step in self.steps for name in step.outputs}
        self.order = {id(step): number for number, step in enumerate(self.steps)}
        self.groups = groups_of(self.steps)
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
        """The tensors of the outputs, and of the gradients, that differ."""
        import tensorflow as tf

        made = {"outputs": self.flat, "gradients": self.gradients}
        for leaf in self.question.wrong:
            if leaf.part in made and leaf.index < len(made[leaf.part]):
                for part in tf.nest.flatten(made[leaf.part][leaf.index], expand_composites=True):
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
        if len(known) < len(arrays) or len(arrays) < 2:
            return None
        return self.partners.of_group(known, backward=bool(step.gradient_of))

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

    def stop(self, origin: Origin | None) -> tuple[Step, str] | None:
        """Where a gradient is lost, unless values differ before any gradient is computed."""
        begin = next((self.order[id(step)] for step in self.steps if step.gradient_of), None)
        if begin is None or (origin is not None and self.order[id(origin.step)] < begin):
            return None
        return stopped_gradient(self)

    def partial(self, step: Step) -> str:
        """Which of the tensors that a step reads is a shard's part of the reference's."""
        if step.kind in MOVES or step.gradient_of:
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
        # A step that all devices run alike may be another way to the same end.
        found.sort(key=lambda step: (not self.alone(step), self.order[id(step)]))
        return found[0] if found else None

    def alone(self, step: Step) -> bool:
        """Whether other devices do this step right, or do not run it for their rows."""
        group = self.groups[id(step)]
        if not all(self.is_bad(each) for each in group):
            return True
        read = [self.value(name) for name in step.inputs if self.status.get(name) in ("same", "part")]
        several = any(value is not None and value.ndim for value in read)
        return several and len({each.device for each in group}) < len(self.question.devices)

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
            if reached.intersection(other.inputs) and bool(other.gradient_of) >= bool(step.gradient_of):
                if other.kind not in MOVES and other.computes:
                    return other
                reached.update(other.outputs)
        return None
