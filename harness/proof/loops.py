"""Loops. A loop whose body keeps rows apart is, on a shard, that shard of the loop on the whole.

The proof is by induction: which values are rows of a whole, or part of a sum over rows, before each turn is guessed,
and one turn with unknown values shows whether that holds after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.proof.bodies import body_of
from harness.proof.evaluation import Evaluation, is_float
from harness.proof.rows import Place
from harness.proof.rules.lists import repeats, uninitialised
from harness.proof.sizes import Unprovable
from harness.proof.terms import Poly, replaced

#: In the place of an axis: a value is a part of a sum over rows.
_PART = -1


def run_while(ev: Evaluation, op: Any, *args: Any) -> list[Any]:
    """The results of a ``While`` op."""
    return _Loop(ev, body_of(op, "body"), body_of(op, "cond"), args).results()


@dataclass
class _Loop:
    ev: Evaluation
    body: Any
    cond: Any
    args: Sequence[Any]
    #: The values before the first turn, in the shapes that they have in the loop.
    start: list[Any] = field(init=False)
    #: The rows that this loop is about, if it is on a shard.
    place: Place | None = field(init=False)
    #: Along which axis a value has these rows.
    axes: dict[int, int] = field(default_factory=dict)
    guesses: dict[int, list[int]] = field(default_factory=dict)
    #: Values after a turn, whole, in terms of those before it.
    wholes: dict[int, Poly] = field(default_factory=dict)

    def __post_init__(self) -> None:
        alg = self.ev.alg
        self.start = list(self.args)
        pairs = zip(self.body.outputs, self.body.inputs, strict=True)
        self.still = [_source(output).name == given.name for output, given in pairs]
        polys = [arg for arg in self.args if isinstance(arg, Poly)]
        shards = (alg.unslice(arg, k) for arg in polys for k in range(len(arg.shape)))
        self.place = next((got[0] for got in shards if got and got[0]), None)
        # Lists of one value over and over, as the accumulators of a gradient may be, stay what they are.
        self.fixed = {i for i, arg in enumerate(self.args) if self._moves(i) and repeats(alg, arg)}
        for i in range(len(self.args)):
            if self.place and self._moves(i):
                self._guess(i)

    def _moves(self, i: int) -> bool:
        return isinstance(self.start[i], Poly) and not self.still[i]

    def _guess(self, i: int) -> None:
        """Guess along which axis a value is a shard: it is one at its start, or is the same everywhere."""
        alg, p, place = self.ev.alg, self.start[i], self.place
        self.axes.pop(i, None)
        if place is None:
            return
        own = [(k, got[0]) for k in range(len(p.shape)) if (got := alg.unslice(p, k)) and got[0] in (None, place)]
        found = [k for k, at in own if at] or [k for k, _ in own if p.shape[k] == place[1] - place[0]]
        listed = uninitialised(alg, p) and len(p.shape) > 1  # the first axis is that of the list
        summed = [_PART] if not p.terms and is_float(p) else []
        self.guesses[i] = sorted(found, key=lambda k: (listed and k == 0, k)) + summed
        self._next_guess(i)

    def _next_guess(self, i: int) -> None:
        self.axes.pop(i, None)
        if self.guesses.get(i):
            self.axes[i] = self.guesses[i].pop(0)

    def results(self) -> list[Any]:
        ev = self.ev
        before = dict(ev.state)
        ev.level += 1
        try:
            for _ in range(4 * len(self.args) + 2):
                given = [self._given(i) for i in range(len(self.args))]
                (test,) = ev.graph(self.cond, given)
                results = ev.graph(self.body, given)
                if ev.state != before:
                    raise Unprovable("a loop changes variables")
                self.wholes = {}
                changes = [self._changes(i, given[i], result) for i, result in enumerate(results)]
                if not any(changes):
                    break
            else:
                raise Unprovable("a loop without an invariant")
        finally:
            ev.level -= 1
            ev.state.clear()
            ev.state.update(before)
        if not isinstance(test, Poly):
            raise Unprovable("the condition of a loop is unknown")
        return [self._result(i, test) for i in range(len(self.args))]

    def _given(self, i: int) -> Any:
        """A value before a turn, in terms of an unknown whole."""
        alg, arg, axis, place = self.ev.alg, self.start[i], self.axes.get(i), self.place
        if not self._moves(i) or i in self.fixed:
            return arg
        if place is None or axis is None:
            return alg.of(alg.atom("param", (self.ev.level, i), (), arg.shape, arg.dtype))
        shape = arg.shape if axis == _PART else replaced(arg.shape, axis, place[2])
        whole = alg.of(alg.atom("param", (self.ev.level, i), (), shape, arg.dtype))
        if axis == _PART:
            return alg.part(alg.base(("loop", whole.id), lambda: whole, partial=False), *place, shape, arg.dtype)
        return alg.slice(whole, axis, *place[:2])

    def _changes(self, i: int, given: Any, result: Any) -> bool:
        """Whether a turn shows that something else was to be guessed about a value."""
        alg = self.ev.alg
        if not self._moves(i):
            # What the body hands on as it is, and variables.
            if not isinstance(result, Poly) and result != given:
                raise Unprovable("a loop changes which variable it uses, or a value is unknown")
            return False
        if not isinstance(result, Poly):
            raise Unprovable("a value in a loop is unknown")
        if i in self.fixed:
            if result is self.start[i]:
                return False
            self.fixed.discard(i)
            return True
        if result.shape != given.shape or result.dtype != given.dtype:
            if result.dtype != given.dtype or not uninitialised(alg, self.start[i]):
                raise Unprovable("a loop changes the shape of a value")
            self.start[i] = alg.broadcast(self.start[i], result.shape)
            self._guess(i)
            return True
        if i not in self.axes or self.place is None:
            self.wholes[i] = result
            return False
        axis = self.axes[i]
        whole = alg.unpart(result, self.place) if axis == _PART else alg.whole(result, axis, self.place)
        if whole is None:
            self._next_guess(i)
            return True
        self.wholes[i] = whole
        return False

    def _result(self, i: int, test: Poly) -> Any:
        """A value after the loop."""
        alg, level, axis, place = self.ev.alg, self.ev.level + 1, self.axes.get(i), self.place
        if i not in self.wholes:
            return self.start[i]
        item = self._pushed(i, level)
        if item is not None and axis is None and uninitialised(alg, self.start[i]):
            return alg.broadcast(item, self.start[i].shape)
        needed = {i} | alg.params(test, level)  # what else goes round in the loop does not matter to this result
        while (more := needed.union(*(alg.params(self.wholes[at], level) for at in needed & {*self.wholes}))) != needed:
            needed = more
        moving = sorted(needed & {*self.wholes})
        inits = [self._whole_start(at) for at in moving]
        refs = tuple(arg for arg in self.args if not isinstance(arg, Poly))
        whole = self.wholes[i]
        args = [*inits, test, *(self.wholes[at] for at in moving)]
        made = alg.of(alg.atom("While", (level, i, tuple(moving), refs), args, whole.shape, whole.dtype))
        if axis is None or place is None:
            return made
        if axis == _PART:
            base = alg.base(("after loop", made.id), lambda: made, partial=True)
            return alg.part(base, *place, made.shape, made.dtype)
        return alg.slice(made, axis, *place[:2])

    def _whole_start(self, i: int) -> Poly:
        axis: int | None = self.axes.get(i)
        start: Poly = self.start[i]
        if axis is None or axis == _PART or self.place is None:
            return start
        whole = self.ev.alg.whole(start, axis, self.place)
        if whole is None:
            raise Unprovable("a loop begins with a value that is no shard")
        return whole

    def _pushed(self, i: int, level: int) -> Poly | None:
        """The value that the loop appends to list ``i`` in each turn, if it is the same in all."""
        alg = self.ev.alg
        alone = alg.alone(self.wholes[i])
        if alone is None or alone.op != "ListPush" or alg.params(alone.args[1], level):
            return None
        own = alg.alone(alone.args[0])
        return alone.args[1] if own is not None and own.op == "param" and own.attrs == (level, i) else None


def _source(tensor: Any) -> Any:
    while tensor.op.type in ("Identity", "EnsureShape"):
        tensor = tensor.op.inputs[0]
    return tensor
