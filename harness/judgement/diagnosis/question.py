"""What is to be explained: the results of two programs, which of them differ, and ways to compute others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness._tensorflow import op_callback
from harness.devices.device import Devices
from harness.judgement.diagnosis.observed import Observed, eager_functions, observe
from harness.judgement.runs import Mode, Program, Result, as_result, to_array
from harness.judgement.state import Snapshot
from harness.judgement.tolerance import Sensitivity, epsilon_of
from harness.judgement.values import wide
from harness.lazy import tf
from harness.records import Finding, Verdict

Part = Literal["outputs", "gradients", "state"]
Array = NDArray[Any]

#: So many ops a graph may have, and so many more for each op that runs in eager code.
_OPS_OF_A_GRAPH = (1000, 10)
#: What a hypothesis leaves of a difference, at most, where it is the cause.
_LEFT_OVER = 0.02
#: Units in the last place, of the element and of the typical one, by which replays may differ from the program.
_ULPS = 64.0


@dataclass(frozen=True)
class Leaf:
    """One result: which one, what it is called, and both values. ``start`` is a variable's value before the call."""

    part: Part
    index: int
    name: str
    found: Array | None
    expected: Array | None
    wrong: bool
    sensitivity: Callable[[], Sensitivity]
    start: Array | None = None

    def of(self, result: Result) -> Array | None:
        """The same result of another run."""
        values = getattr(result, self.part)
        return values[self.index] if self.index < len(values) else None

    def right_as(self, found: Array | None) -> bool:
        """Whether the result would be right if it were this one."""
        return replace(self, found=found, wrong=False).explained_by(self.expected)

    def explained_by(self, predicted: Array | None) -> bool:
        """Whether ``predicted`` is what was found, as far as rounding allows, and the difference is gone with it."""
        found = self.found
        if found is None or predicted is None or found.shape != predicted.shape:
            return found is None and predicted is None
        if not found.size:
            return True
        if not epsilon_of(found.dtype):
            return bool(np.array_equal(found, predicted))
        have, want = wide(found), wide(predicted)
        if not np.array_equal(np.isfinite(have), np.isfinite(want)):
            return False
        error = np.where(np.isfinite(have), np.abs(have - want), 0.0)
        magnitude = np.where(np.isfinite(want), np.abs(want), 0.0)
        typical = float(np.sqrt(np.mean(np.square(magnitude))))
        bound = _ULPS * epsilon_of(found.dtype) * (magnitude + typical)
        if np.any(error > bound):
            measured = self.sensitivity()
            if self.expected is not None and measured.change.shape == found.shape:
                bound = np.maximum(bound, 4.0 * measured.bound(want, epsilon_of(found.dtype)))
            else:
                bound = 16.0 * bound
            if np.any(error > bound):
                return False
        if not self.wrong or self.expected is None or self.expected.shape != found.shape:
            return True
        with np.errstate(invalid="ignore"):
            before = np.abs(have - wide(self.expected))
        if not np.all(np.isfinite(before)):
            return True
        return float(np.linalg.norm(error)) <= _LEFT_OVER * float(np.linalg.norm(before))


@dataclass(frozen=True)
class Cause:
    """Why results differ: a sentence without a full stop, and the place.

    ``evidence`` are lines to be read before those of the results that differ. ``at_join``: what the shards compute is
    right, and what is made of it is not. ``rows``: of the batch, where it is about these alone. ``final``: the first op
    that differs says nothing more. ``only_where``: it says where results begin to differ, and not why.
    ``severity``: of the finding. ``rule``: the code of the rule that claims it.
    """

    sentence: str
    place: str | None = None
    next_step: str = ""
    evidence: tuple[str, ...] = ()
    at_join: bool = False
    rows: tuple[int, ...] = ()
    final: bool = False
    only_where: bool = False
    severity: Verdict = Verdict.FAIL
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.sentence} ({self.place})" if self.place else self.sentence


@dataclass
class Question:
    """One mode in which results differ, and the means to compute what else could have led to them."""

    mode: Mode
    leaves: list[Leaf]
    parallel: Program
    reference: Program
    devices: Devices
    snapshot: Snapshot
    watched: Sequence[Any]
    #: What comparing found: one finding for each result that differs.
    findings: Sequence[Finding]
    #: Whether two runs of the program under test on the same inputs differ.
    unsteady: bool = False
    #: Names of inputs that every shard gets whole.
    whole: tuple[str, ...] = ()
    #: Makes the program for other devices, where that is known.
    maker: Callable[[Devices], Callable[..., Any]] | None = None
    #: What was tried in vain, for the reader.
    ruled_out: list[str] = field(default_factory=list)
    #: Hypotheses that there was no time for, and when the first one was begun.
    untried: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    #: Results of the reference for each shard, by how the inputs are split.
    shards: dict[Any, Any] = field(default_factory=dict)
    #: Errors of replays: what they would have shown is not known.
    failed: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[Leaf]:
        """The results that differ."""
        return [leaf for leaf in self.leaves if leaf.wrong]

    @property
    def wrong_states(self) -> list[Leaf]:
        """The variables that differ."""
        return [leaf for leaf in self.wrong if leaf.part == "state"]

    @property
    def refused(self) -> str:
        """What is not the cause, and what was not tried."""
        texts = [f"Ruled out: {'; '.join(self.ruled_out)}"] if self.ruled_out else []
        texts += [f"Not tried, because the search took too long: {'; '.join(self.untried)}"] if self.untried else []
        return ". ".join(texts)

    @property
    def only_gradients(self) -> bool:
        """Whether nothing differs but gradients that verify takes itself."""
        return all(leaf.part == "gradients" for leaf in self.wrong)

    @property
    def seen(self) -> Observed:
        """What the program under test does."""
        return self._line_by_line[0]

    @property
    def line_by_line(self) -> Result | None:
        """Its results, without gradients, where each ``tf.function`` runs as eager code; ``None`` where it raises."""
        return self._line_by_line[1]

    @cached_property
    def _line_by_line(self) -> tuple[Observed, Result | None]:
        return self._observed(self.parallel)

    @cached_property
    def seen_reference(self) -> Observed:
        """What the reference does."""
        return self._observed(self.reference)[0]

    def _observed(self, program: Program) -> tuple[Observed, Result | None]:
        leaves = program.leaves()
        with self.from_start():
            seen, raw = observe(lambda: replace(program, gradients=False).step(*leaves), leaves)
            return seen, None if raw is None else as_result(raw, self.watched)

    @contextmanager
    def from_start(self) -> Iterator[None]:
        """Restore the state from before the call, before and after the body."""
        self.snapshot.restore()
        try:
            yield
        finally:
            self.snapshot.restore()

    def run(
        self,
        fn: Callable[..., Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        *,
        gradients: bool | None = None,
        fresh: bool = True,
    ) -> Result | None:
        """The reference, or ``fn``, on the reference's device in eager code; ``None`` where it raises.

        ``fresh``: from the state before the call. Otherwise from that which the last run left.
        """
        single = self.reference
        program = replace(
            single,
            fn=fn or single.fn,
            inputs=single.inputs if inputs is None else inputs,
            gradients=single.gradients if gradients is None else gradients,
        )
        with self.from_start() if fresh else nullcontext():
            try:
                return as_result(program.step(*program.leaves()), self.watched)
            except Exception as error:  # noqa: BLE001 - the user's program may refuse other inputs than its own
                self.failed.append(f"{type(error).__name__}: {error}")
                return None

    def right_in(self, result: Result) -> bool:
        """Whether the results that differ are right in another run."""
        return all(leaf.right_as(leaf.of(result)) for leaf in self.wrong)

    def result_in_graph(
        self, fn: Callable[..., Any], on_op: Callable[..., Any], *, gradients: bool = False
    ) -> Result | None:
        """The same with what the variables are after it."""
        found: Result | None = self.in_graph(
            fn, on_op, read=lambda raw: as_result(raw, self.watched), gradients=gradients
        )
        return found

    def in_graph(
        self,
        fn: Callable[..., Any],
        on_op: Callable[..., Any],
        loops: bool = False,
        read: Callable[[Any], Any] = lambda raw: raw,
        *,
        gradients: bool = False,
    ) -> Any:
        """What ``fn`` returns for the reference's inputs, as a graph whose ops ``on_op`` sees.

        ``None`` where it cannot be built. What ``on_op`` returns for an op replaces its results. Of ``loops`` it sees
        nothing unless asked for: one that computes something else may never end. Nor may a loop of Python that reads a
        dataset, of which a graph has no end: the graph may have so many ops for each one that runs in eager code.
        """
        left = count(_OPS_OF_A_GRAPH[0] + _OPS_OF_A_GRAPH[1] * self.seen_reference.ops, -1)

        def limited(kind: str, inputs: Any, attributes: Any, outputs: Any, graph: Any) -> Any:
            if next(left) <= 0:
                raise RecursionError("the graph has no end: the program reads a dataset in a loop of Python")
            return None if not loops and _in_loop(graph) else on_op(kind, inputs, attributes, outputs, graph)

        program = replace(self.reference, fn=fn, gradients=gradients, _graphs={})
        with self.from_start():
            try:
                with eager_functions(), op_callback(limited):
                    return read(program.runner("graph")(*program.arguments("graph")))
            except Exception as error:  # noqa: BLE001 - the user's program may refuse to be built as a graph
                self.failed.append(f"{type(error).__name__}: {error}")
                return None

    def in_eager_code(self, program: Program, on_op: Callable[..., Any]) -> None:
        """Run a program from the same state, with no gradients, for ``on_op`` to see its ops."""
        with self.from_start(), eager_functions(), op_callback(on_op):
            replace(program, gradients=False).step(*program.leaves())

    @cached_property
    def reference_unsteady(self) -> bool:
        """Whether two runs of the reference from the same state differ by more than rounding explains."""
        first, second = self.run(), self.run()
        if first is None or second is None:
            return False
        return not all(
            replace(leaf, found=leaf.of(first), expected=None).explained_by(leaf.of(second)) for leaf in self.leaves
        )

    def with_leaves(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """The inputs, with other leaves."""
        packed: dict[str, Any] = tf.nest.pack_sequence_as(dict(self.reference.inputs), list(leaves))
        return packed

    @cached_property
    def input_arrays(self) -> list[Array | None]:
        """The leaves of the inputs as arrays; ``None`` for others."""
        return [
            to_array(leaf) if hasattr(leaf, "dtype") and hasattr(leaf, "shape") else None
            for leaf in self.reference.leaves()
        ]

    @cached_property
    def input_names(self) -> list[str]:
        """What the leaves of the inputs are called."""
        names = []
        for name, value in sorted(self.reference.inputs.items()):
            count = len(tf.nest.flatten(value))
            names += [name] if count == 1 else [f"{name}[{index}]" for index in range(count)]
        return names


def _in_loop(graph: Any) -> bool:
    """Whether a graph is the body or the condition of a loop, or is called there."""
    while graph is not None:
        if type(graph).__name__ in ("WhileBodyFuncGraph", "WhileCondFuncGraph"):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False
