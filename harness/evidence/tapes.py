"""Finds the forward op of each backward op while a tape is played back.

TensorFlow computes a gradient op by op: the ops that run while it asks for the gradient of one forward op are that
forward op's backward ops. Which forward op it is follows from what it is asked with: its outputs, else its inputs,
else (an op of which TensorFlow keeps neither, such as BiasAdd) the tensor whose gradient arrives.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.evidence.steps import Step

_SUMS = frozenset({"AddN", "AddV2"})
_IDENTITIES = frozenset({"Identity", "IdentityN"})


@dataclass
class _Play:
    """One playing back of a tape."""

    targets: Sequence[Any]
    #: From a gradient to the tensors that it is the gradient of.
    gradient_of: dict[int, list[int]] = field(default_factory=dict)
    played: set[int] = field(default_factory=set)
    #: Ones that TensorFlow makes before it plays anything: the gradients of the targets, in their order.
    ones: list[int] | None = field(default_factory=list)

    def begin(self) -> None:
        """The first gradient of an op is about to be computed."""
        if self.ones is not None and len(self.ones) == len(self.targets):
            for target, one in zip(self.targets, self.ones, strict=True):
                self.gradient_of.setdefault(one, []).append(target._id)
        self.ones = None


class _Stack(threading.local):
    """What this thread is computing gradients of: plays of tapes, and in each the forward op."""

    def __init__(self) -> None:
        self.plays: list[_Play] = []
        self.forwards: list[Step | None] = []


class Tapes:
    """Which op made a tensor, and which gradient is being computed."""

    def __init__(self) -> None:
        self.stack = _Stack()
        self.producer: dict[int, Step] = {}
        #: Ops by their type and each of their inputs.
        self.readers: defaultdict[tuple[str, int], list[Step]] = defaultdict(list)

    def add(self, step: Step) -> None:
        """An op ran, or was added to a graph."""
        for tensor_id in step.outputs:
            self.producer[tensor_id] = step
        for tensor_id in step.inputs:
            self.readers[step.type, tensor_id].append(step)
        stack = self.stack
        if step.in_gradient and step.forward is None and stack.plays and step.outputs:
            self.add_up(step, stack.plays[-1])

    def add_up(self, step: Step, play: _Play) -> None:
        """Outside of any op's gradient a tape makes ones to begin with, and adds up the gradients of one tensor."""
        if play.ones is not None:
            play.ones.append(step.outputs[0])
        origins = [origin for tensor_id in step.inputs for origin in play.gradient_of.get(tensor_id, ())]
        if origins and step.type in _SUMS:
            play.gradient_of.setdefault(step.outputs[0], []).extend(origins)

    def on_play(self, targets: Any, seeds: Any, run: Callable[[], Any]) -> Any:
        """A tape is played back."""
        play = _Play([target for target in _listed(targets) if hasattr(target, "_id")])
        for target, seed in zip(_listed(targets), _listed(seeds), strict=False):
            if hasattr(seed, "_id") and hasattr(target, "_id"):
                play.gradient_of.setdefault(seed._id, []).append(target._id)
        self.stack.plays.append(play)
        try:
            # What runs outside of any op's gradient belongs to no single forward op: seeds, and sums of gradients.
            return self.within(None, run)
        finally:
            self.stack.plays.pop()

    def on_gradient(
        self,
        op_type: str,
        inputs: Any,
        outputs: Any,
        out_grads: Sequence[Any],
        scope: str | None,
        run: Callable[[], Any],
    ) -> Any:
        """The gradient of one op is computed."""
        play = self.stack.plays[-1] if self.stack.plays else _Play(())
        play.begin()
        forward = self.forward_step(op_type, inputs, outputs, out_grads, scope, play)
        result = self.within(forward, run)
        if forward is not None:
            play.played.add(id(forward))
            self.note(play, result, forward.inputs)
        return result

    def on_region(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """A custom gradient, or a call: its forward op is the one that made its first output.

        What it only hands through was made before it, and maybe elsewhere: the op that made it is behind an input too,
        and so is met more often. In a graph, inputs and outputs both hold results, arguments and variables.
        """
        given = [getattr(tensor, "_id", -1) for tensor in inputs]
        made = [self.through_identities(tensor._id) for tensor in outputs if hasattr(tensor, "_id")]
        steps = [step for step in made if step is not None and step.type != "ReadVariableOp"]
        met = Counter(id(step) for step in [*made, *map(self.through_identities, given)])
        return min(steps, key=lambda step: met[id(step)], default=None), given

    def on_region_gradient(self, region: Any, run: Callable[[], Any]) -> Any:
        """The gradient of such a region is computed."""
        if self.stack.plays:
            self.stack.plays[-1].begin()
        forward, inputs = region if region is not None else (None, ())
        result = self.within(forward, run)
        if self.stack.plays:
            self.note(self.stack.plays[-1], result, inputs)
        return result

    def within(self, forward: Step | None, run: Callable[[], Any]) -> Any:
        """Run what computes the gradient of ``forward``, or of no single op."""
        self.stack.forwards.append(forward)
        try:
            return run()
        finally:
            self.stack.forwards.pop()

    def note(self, play: _Play, grads: Any, sources: Sequence[int]) -> None:
        """Remember what these gradients are the gradients of."""
        for grad, source in zip(_listed(grads), sources, strict=False):
            for tensor in (grad, getattr(grad, "values", None)):
                if tensor is not None and hasattr(tensor, "_id"):
                    play.gradient_of.setdefault(tensor._id, []).append(source)

    def forward_step(
        self, op_type: str, inputs: Any, outputs: Any, out_grads: Sequence[Any], scope: str | None, play: _Play
    ) -> Step | None:
        """The forward op whose gradient TensorFlow asks for."""
        for tensor in outputs or ():
            step = self.producer.get(getattr(tensor, "_id", -1))
            if step is not None and step.type == op_type:
                return step
        given = [(at, tensor._id) for at, tensor in enumerate(inputs or ()) if hasattr(tensor, "_id")]
        same = [
            step
            for step in (self.readers.get((op_type, given[0][1]), ()) if given else ())
            if all(at < len(step.inputs) and step.inputs[at] == tensor_id for at, tensor_id in given)
        ]
        if len(same) == 1:
            return same[0]
        found = [step for step in self.steps_behind(out_grads, play) if step.type == op_type]
        if same:
            # The same op on the same inputs more than once, such as on two devices.
            found = [step for step in found if step in same] or same
        if not found:
            makers = [self.through_identities(target._id) for target in play.targets]
            found = [step for step in makers if step is not None and step.type == op_type]
        if scope is not None and len(found) > 1:
            found = [step for step in found if _is_in_scope(step.name or "", scope)] or found
        fresh = [step for step in found if id(step) not in play.played] or found
        return fresh[-1] if fresh else None

    def steps_behind(self, grads: Sequence[Any], play: _Play) -> list[Step]:
        """The ops that made the tensors that these are the gradients of, in the order in which they were met."""
        found = []
        for grad in grads:
            for tensor in (grad, getattr(grad, "values", None)):
                for origin in play.gradient_of.get(getattr(tensor, "_id", -1), ()):
                    for step in (self.producer.get(origin), self.through_identities(origin)):
                        if step is not None and step not in found:
                            found.append(step)
        return found

    def through_identities(self, tensor_id: int) -> Step | None:
        """The op that made a tensor; a custom gradient hands its tensors through an Identity or IdentityN."""
        step = self.producer.get(tensor_id)
        while step is not None and step.type in _IDENTITIES:
            source = step.inputs[step.outputs.index(tensor_id)]
            maker = self.producer.get(source)
            if maker is None:
                return step
            tensor_id, step = source, maker
        return step


def _is_in_scope(name: str, scope: str) -> bool:
    return name == scope or name.rpartition("/")[0] == scope


def _listed(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return value if isinstance(value, (list, tuple)) else (value,)
