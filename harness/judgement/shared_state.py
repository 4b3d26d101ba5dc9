"""Which variables are the state of both programs, and which are one program's own affair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.judgement.runs import same_bits, value_of, variable_name
from harness.judgement.state import Snapshot, is_comparable, plain, variables_of
from harness.lazy import tf
from harness.parallel.closure import carried, keras_classes


@dataclass
class SharedState:
    """The variables that two programs share, so that a different value after a call is a difference of the programs.

    These are the variables that the caller names, those that both programs use when they run, and those that the
    reference changes in a Keras layer, metric or optimizer of which both programs use a variable. Where each program
    works with weights of its own that start equal, as two copies of a model do, those of the reference stand for both.
    All other state is its program's own affair, even if both can reach it: each may keep an optimizer or a counter of
    its own there.
    """

    parallel: Callable[..., Any]
    reference: Callable[..., Any]
    #: Those that are shared, the named ones first; each mode may add some.
    variables: list[Any]
    #: Names of those that both programs can reach, and that the reference alone uses, and changes.
    of_reference: set[str] = field(default_factory=set)
    #: By the ids of the reference's variables: what the parallel program has in the place of each.
    copies: dict[int, Any] = field(default_factory=dict)

    def of_parallel(self, variable: Any) -> Any:
        """The variable that the parallel program uses where the reference uses this one."""
        return self.copies.get(id(variable), variable)

    def add(
        self,
        used: AbstractSet[int],
        used_by_reference: AbstractSet[int],
        snapshot: Snapshot,
        after: Mapping[int, Any],
    ) -> None:
        """Add the variables that one mode has shown to be shared.

        ``used`` are ids of those that each program uses, and ``after`` has what the parallel program left in them.
        """
        known = set(map(id, self.variables)) | _generator_states([self.parallel, self.reference])
        candidates = [
            each
            for each in snapshot.variables
            if id(each) in used_by_reference and id(each) not in known and is_comparable(each)
        ]
        starts, both = snapshot.starts, used & used_by_reference
        alone = [
            each for each in candidates if id(each) not in both and not same_bits(value_of(each), starts[id(each)])
        ]
        shared = both | self._kept_with(both) if alone else both
        self.variables = [*self.variables, *(each for each in candidates if id(each) in shared)]
        own = [each for each in alone if id(each) not in shared]
        others = [
            each
            for each in snapshot.variables
            if id(each) in used - used_by_reference and id(each) in after and is_comparable(each)
        ]
        changed = {id(each) for each in others if not same_bits(after[id(each)], starts[id(each)])}
        copies = _copies(own, others, changed, starts)
        self.copies |= copies
        self.variables += [each for each in own if id(each) in copies]
        if own := [each for each in own if id(each) not in copies]:
            reached = set(map(id, variables_of([self.parallel], ())))
            self.of_reference |= {variable_name(each) for each in own if id(each) in reached}

    def _kept_with(self, used: AbstractSet[int]) -> set[int]:
        """The ids of all variables of the objects that keep one of those that are ``used``."""
        owners = [
            {id(plain(each)) for each in owner.variables} for owner in _keras_objects([self.parallel, self.reference])
        ]
        nearest: dict[int, set[int]] = {}
        for owned in sorted(owners, key=len):  # a layer before the one that it is a part of
            nearest.update(dict.fromkeys(owned - nearest.keys(), owned))
        return {
            each for owned in nearest.values() if any(nearest[of] is owned for of in owned & used) for each in owned
        }


def _copies(
    own: Sequence[Any], others: Sequence[Any], changed: AbstractSet[int], starts: Mapping[int, Any]
) -> dict[int, Any]:
    """By the ids of variables that the reference changes, the only one of the others that starts with the same numbers.

    Numbers that are all equal, such as the zeros of a bias, do not say which variable is meant. But if all variables
    that the programs change start alike one by one, in the order in which the programs hold them, each is a copy of the
    one in its place.
    """

    def kinds(variables: Sequence[Any]) -> list[tuple[Any, ...]]:
        values = [starts[id(each)] for each in variables]
        return [(value.dtype.name, value.shape, value.tobytes()) for value in values]

    own, others = ([each for each in side if _is_array(starts[id(each)])] for side in (own, others))
    mine, theirs = kinds(own), kinds(others)
    known = {
        id(variable): others[theirs.index(kind)]
        for variable, kind in zip(own, mine, strict=True)
        if mine.count(kind) == theirs.count(kind) == 1 and np.ptp(np.abs(starts[id(variable)])) > 0
    }
    updated = [each for each in others if id(each) in changed]
    in_order = {id(variable): other for variable, other in zip(own, updated, strict=False)}
    return in_order if known and kinds(updated) == mine else known


def _is_array(start: Any) -> bool:
    return np.issubdtype(start.dtype, np.inexact) and start.size > 1


def _keras_objects(callables: Sequence[Callable[..., Any]]) -> Iterator[Any]:
    """Keras's layers, metrics and optimizers that the callables carry, and those within them. Models only hold some."""
    kinds, models = keras_classes("layers.Layer", "optimizers.Optimizer", "metrics.Metric"), keras_classes("Model")
    seen: set[int] = set()
    new: list[Any] = list(callables)
    while new:
        found = carried(new.pop(), lambda item: isinstance(item, kinds) and id(item) not in seen)
        seen.update(map(id, found))
        new += found
        yield from (item for item in found if not isinstance(item, models))


def _generator_states(callables: Sequence[Callable[..., Any]]) -> set[int]:
    generators = [made for fn in callables for made in carried(fn, lambda item: isinstance(item, tf.random.Generator))]
    return {id(generator.state) for generator in generators}
