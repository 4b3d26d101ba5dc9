"""Runs both programs in one mode after the other and collects what is to be judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.devices.device import Devices
from harness.devices.lost import lost_hosts
from harness.errors import HarnessError, HostUnreachable
from harness.evidence.trace import Trace
from harness.evidence.tracing import trace
from harness.judgement.diagnosis.observed import draws_numbers, place_of_function
from harness.judgement.diagnosis.question import Leaf, Part, Question
from harness.judgement.drawing import SameNumbers
from harness.judgement.error_line import add_raised, error_finding, error_line
from harness.judgement.exactness import were_exact
from harness.judgement.modes import judge_modes
from harness.judgement.oracle import ask_oracle
from harness.judgement.origins import with_origins
from harness.judgement.outside import judge_python_layers
from harness.judgement.patterns import judge_pattern
from harness.judgement.placement import hint_of_sharing, judge_placement, judge_sharing, judge_updates, judge_variables
from harness.judgement.runs import (
    PROJECTION_SCOPE,
    Mode,
    Program,
    Result,
    as_result,
    axis_and_whole,
    differing,
    rows_of,
    to_array,
)
from harness.judgement.sensitivity import Measuring, Spread
from harness.judgement.shared_state import SharedState
from harness.judgement.slots import judge_slots
from harness.judgement.state import Snapshot, named_variables, variables_made, variables_of
from harness.judgement.steps import changes, is_step
from harness.judgement.structure import judge_structure
from harness.judgement.tolerance import Sensitivity, coarsest_of, epsilon_of
from harness.judgement.uses import uses_noted
from harness.judgement.values import Judged, Subject, compare, largest_magnitude, names_of
from harness.lazy import tf
from harness.parallel.notes import add_note

#: Two runs may differ by no more than this many units in the last place. The bound that is measured on the reference
#: alone would not do: a reference that draws random numbers would allow everything.
_REPEAT_ULPS = 64.0


@dataclass
class Examination:
    """One call of ``verify``: its arguments, and what the modes have shown so far."""

    parallel: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Mapping[str, Any]
    devices: Devices
    variables: list[Any]
    #: ``None``: if there are variables, and the program is no step: see :func:`is_step`.
    gradients: bool | None
    oracle: Callable[..., Any] | None
    exact: bool | None
    pattern: str | None
    seed: int
    judged: Judged = field(default_factory=Judged)
    traces: dict[str, Trace] = field(default_factory=dict)
    gradient_values: int = 0
    programs: int = 0
    expected: dict[str, Result] = field(default_factory=dict)
    #: The modes in which results differ, each with what is needed to find out why.
    questions: list[Question] = field(default_factory=list)
    #: How far rounding moves the results of the reference, as an earlier mode has shown.
    spread: Spread | None = None
    progress: Callable[[str], None] = lambda _: None
    #: Makes the program for other devices, where that is known.
    maker: Callable[[Devices], Callable[..., Any]] | None = None

    def __post_init__(self) -> None:
        #: Whether the caller wants gradients compared, come what may.
        self.asked = wanted = bool(self.gradients)
        numbers = SameNumbers() if hasattr(self.reference, "is_first_device_run") else None
        self.tested = Program(self.parallel, self.inputs, self.variables, wanted, self.seed, numbers=numbers)
        self.single = replace(self.tested, fn=self.reference, scope=self.devices[0].name, _graphs={})
        self.state = variables_of([self.parallel, self.reference], self.variables)
        self.shared = SharedState(self.parallel, self.reference, self.state[: len(self.variables)])

    def run(self, mode: Mode) -> None:
        """Run, compare and judge in one mode."""
        try:
            snapshot = Snapshot.of(self.state)  # what is added to it is part of the state from then on
            try:
                self._run(mode, snapshot)
            finally:
                snapshot.restore()
        except (tf.errors.OpError, HostUnreachable) as error:
            # A host of a cluster may be lost at any moment, not only while the program under test runs.
            if not lost_hosts():
                raise
            self._error(error, mode)

    def _run(self, mode: Mode, snapshot: Snapshot) -> None:
        # The program under test goes first: what it makes on its first call has to be its own doing.
        self.progress(f"tracing the parallel program, {mode}")
        before, used = len(self.judged.findings), set[int]()
        traced = self._traced(mode, snapshot, used)
        snapshot.restore()
        if self.gradients is None and traced is not None:
            # A second derivative through a training step, taken outside of its scopes, would be no part of it.
            after = dict(zip(map(id, snapshot.variables), traced[1].state, strict=False))
            rows = rows_of(self.parallel, self.inputs)
            wanted = bool(self.variables) and not is_step(*traced, self.variables, after, snapshot.starts, rows)
            self.gradients = self.tested.gradients = self.single.gradients = wanted
            if self.gradients:
                self.tested.forget_graphs()
                self.progress(f"tracing the parallel program with gradients, {mode}")
                traced = None
                traced = self._traced(mode, snapshot, used)
                snapshot.restore()
        again: dict[int, NDArray[Any]] = {}
        mixed_up = list(judge_sharing(traced[0], mode)) if traced is not None else []
        self.judged.findings.extend(mixed_up)
        # Threads that take turns, as they did so far, are not mixed up. Without them the program may even hang.
        if traced is not None and not mixed_up:
            self.progress(f"running the parallel program again, {mode}")
            try:
                again = differing(traced[1], self._raw(self.tested, mode))
            except Exception as error:
                if lost_hosts():
                    raise
                if hint := hint_of_sharing(traced[0]):
                    add_note(error, hint)
                self._error(error, mode, "a second run of the parallel program")
                traced = None
            snapshot.restore()
        self.progress(f"running the reference, {mode}")
        try:
            with uses_noted(snapshot) as used_by_reference:
                raw = self._raw(self.single, mode)
            after = {} if traced is None else dict(zip(map(id, snapshot.variables), traced[1].state, strict=False))
            self.shared.add(used, used_by_reference, snapshot, after)
            expected = as_result(raw, self.shared.variables, snapshot.starts, copied=mode == "eager")
            del raw
        except HarnessError:
            raise
        except Exception as error:  # noqa: BLE001 - the user's reference may raise anything; nothing is proven then
            if lost_hosts():
                self._error(error, mode, "the reference")
                return
            line = error_line(error)
            raised = [finding for finding in self.judged.findings[before:] if finding.kind == "error"]
            alike = [finding for finding in raised if finding.message.startswith(line)]
            self.judged.findings[:] = [finding for finding in self.judged.findings if finding not in alike]
            own = self.devices[0] if hasattr(self.reference, "is_first_device_run") else None
            add_raised(self.judged.undecided, error, mode, both=bool(alike), own=own)
            return
        if traced is None:
            return
        evidence, found = traced
        # The reference may have added some, which the program under test has left alone.
        after = snapshot.starts | after
        found = replace(found, state=tuple(after[id(self.shared.of_parallel(each))] for each in self.shared.variables))
        # Of another mode only the outputs are compared with these.
        self.expected[mode] = replace(expected, gradients=(), state=())
        snapshot.restore()
        self.programs += 1
        self.traces[mode] = evidence
        self.progress(f"comparing, {mode}")
        if mixed_up:
            self.judged.undecided.append(f"values were not compared: threads shared a GPU ({mode})")
        else:
            self._compare(found, expected, again, evidence, mode, snapshot)
        # The slots of a Keras optimizer are known by name: their finding comes before others about variables.
        slots = judge_slots(self.parallel, mode)
        self.judged.findings.extend(slots)
        if mode == "eager" and not any(question.mode == mode for question in self.questions):
            alone = partial(self._trace_of_reference, mode, snapshot)
            self.judged.findings.extend(judge_python_layers(evidence, alone, self.devices, mode))
        # The rows of a batch say how many devices can have work only where the batch is what is shared out.
        rows = self._batch(expected) if self.pattern is None else None
        self.judged.findings.extend(
            judge_placement(
                evidence,
                self.devices,
                mode,
                rows=rows,
                on_host=self.pattern is None,
                program=place_of_function(self.parallel),
                slots_named=bool(slots),
            )
        )
        if self.pattern is not None:
            self.judged.findings.extend(judge_pattern(evidence, self.devices, self.pattern, mode))
            self.judged.findings.extend(judge_updates(evidence, self.devices, mode))

    def _traced(self, mode: Mode, snapshot: Snapshot, used: set[int]) -> tuple[Trace, Result] | None:
        raised: list[Exception] = []
        runner = self.tested.runner(mode)

        def run(*arguments: Any) -> Any:
            try:
                return runner(*arguments)
            except Exception as error:
                raised.append(error)
                raise

        try:
            with variables_made() as made, uses_noted(snapshot) as noted:
                evidence = trace(run, *self.tested.arguments(mode))
        except Exception as error:
            # What the user's program raises is a finding; an error of the evidence itself is not.
            if error not in raised:
                raise
            self._error(error, mode)
            return None
        self.judged.findings.extend(
            judge_variables(made, evidence, self.devices, mode, place_of_function(self.parallel))
        )
        own = tuple(op for op in evidence.ops if PROJECTION_SCOPE not in op.name)
        found = as_result(evidence.outputs, snapshot.variables, snapshot.starts, copied=mode == "eager")
        used |= noted
        return with_origins(replace(evidence, ops=own, outputs=None), self.inputs), found

    def _error(self, error: Exception, mode: Mode, program: str = "the parallel program") -> None:
        self.judged.findings.append(error_finding(error, program, mode, self.devices))

    def _raw(self, program: Program, mode: Mode) -> Any:
        return program.runner(mode)(*program.arguments(mode))

    def _compare(
        self,
        found: Result,
        expected: Result,
        again: Mapping[int, NDArray[Any]],
        evidence: Trace,
        mode: Mode,
        snapshot: Snapshot,
    ) -> None:
        wrong = judge_structure(found, expected, mode)
        self.judged.findings.extend(wrong)
        if any(finding.kind == "structure" for finding in wrong):
            return
        judged = self.judged
        judged.arithmetic = self._arithmetic(evidence, expected, mode, snapshot)
        drawn = self.single.numbers is not None and any(draws_numbers(op.type) for op in evidence.ops)
        # A graph draws other numbers than eager code, though the same in each run.
        modes_differ = [] if drawn else list(judge_modes(self.expected, mode, judged.arithmetic))
        judged.undecided.extend(modes_differ)
        starts = snapshot.starts
        exact = self.exact
        if exact is None:
            named = [starts[id(variable)] for variable in self.state[: len(self.variables)]]
            exact = were_exact(self.single, found, expected, named, evidence.ops, judged.arithmetic)
        terms = max(2, rows_of(self.parallel, self.inputs) or 1)
        before = [starts[id(variable)] for variable in self.shared.variables]
        left_alone = all(
            one is other is start for start, one, other in zip(before, found.state, expected.state, strict=True)
        )
        measured = Measuring(
            self.single,
            mode,
            expected,
            snapshot,
            () if left_alone else self.shared.variables,
            terms,
            judged.arithmetic,
            self.progress,
            None if modes_differ else self.spread,
        )
        self.spread = None
        leaves, first = list[Leaf](), len(judged.findings)
        unsteady = self._same_again(found, again, mode, exact, measured)

        # A training step returns gradients, or updates variables by them; some are nothing but rounding error.
        steps = not self.gradients and any(op.role == "gradient" for op in evidence.ops)

        @cache
        def scale(part: Part) -> float:
            if part != "state":
                return largest_magnitude(getattr(expected, part))
            # An optimizer's own variables, which nobody names, are on scales of their own.
            named = slice(len(self.variables))
            return largest_magnitude(changes(self.shared.variables[named], before[named], expected.state[named]))

        def judge(part: Part, index: int, subject: Subject, start: Any = None) -> None:
            def of(spread: Spread) -> Sensitivity:
                return getattr(spread, part)[index]  # type: ignore[no-any-return]

            have, want = getattr(found, part)[index], getattr(expected, part)[index]
            known = len(judged.findings)
            compare(
                judged,
                subject,
                have,
                want,
                exact=exact,
                measure=lambda wanted: of(measured(wanted)),
                rounded=lambda: of(measured.of_rounding),
                scale=partial(scale, part) if part == "gradients" or steps else float,
            )
            wrong = len(judged.findings) > known
            leaves.append(Leaf(part, index, subject.where, have, want, wrong, lambda: of(measured.whole()), start))

        for index, name in enumerate(names_of(expected.structure)):
            judge("outputs", index, Subject("value", name, mode))
        compared = judged.compared
        for index, name in enumerate(self._gradient_names):
            judge("gradients", index, Subject("gradient", name, mode))
        self.gradient_values += judged.compared - compared
        names = {id(variable): name for variable, name in named_variables(self.variables, self.state)}
        for index, (variable, start) in enumerate(zip(self.shared.variables, before, strict=True)):
            changed = expected.state[index] is not start and not np.array_equal(expected.state[index], start)
            if not changed and (found.state[index] is start or np.array_equal(found.state[index], start)):
                continue
            judge("state", index, Subject("value", f"{names[id(variable)]} after the call", mode), start)
        if wrong := judged.findings[first:]:
            del judged.findings[first:]
            question = Question(
                mode,
                leaves,
                self.tested,
                self.single,
                self.devices,
                snapshot,
                self.shared.variables,
                wrong,
                unsteady,
                axis_and_whole(self.parallel)[1],
                self.maker,
            )
            self.questions.append(question)
        if self.oracle is not None:
            ask_oracle(
                self.judged, self.oracle, self.inputs, {"parallel": found, "reference": expected}, mode, measured.whole
            )
        self.spread = measured.spread

    @property
    def _gradient_names(self) -> list[str]:
        return [f"gradient for {name}" for name in self.tested.source_names()] if self.gradients else []

    def _arithmetic(self, evidence: Trace, expected: Result, mode: Mode, snapshot: Snapshot) -> float:
        """The largest epsilon of the dtypes that the reference computes in.

        The program under test computes in the same, or in a coarser one, which is a fault and no excuse for itself.
        """
        coarsest = coarsest_of(evidence)
        given = [to_array(leaf) for leaf in self.single.leaves() if hasattr(leaf, "dtype")]
        arrays = [*given, *expected.outputs, *expected.state]
        # A variable or an input of a coarser type does not say what the reference computes in.
        known = [epsilon_of(array.dtype) for array in arrays if array is not None]
        if coarsest <= min(filter(None, known), default=0.0):
            return coarsest
        return coarsest_of(self._trace_of_reference(mode, snapshot))

    def _trace_of_reference(self, mode: Mode, snapshot: Snapshot) -> Trace:
        snapshot.restore()
        evidence = trace(self.single.runner(mode), *self.single.arguments(mode))
        snapshot.restore()
        return evidence

    def _same_again(
        self, first: Result, again: Mapping[int, NDArray[Any]], mode: Mode, exact: bool, measured: Measuring
    ) -> bool:
        """Whether two runs on the same inputs differ by more than what another order of summation explains.

        ``again`` has the outputs and gradients of the second run that differ from the first, by their index.
        """
        steady = True
        names = [*names_of(first.structure), *self._gradient_names]
        values = [*first.outputs, *first.gradients]
        for index, other in again.items():
            repeated = Judged(arithmetic=self.judged.arithmetic)
            compare(
                repeated,
                Subject("nondeterminism", names[index], mode, against="the first run on the same inputs and variables"),
                other,
                values[index],
                exact=exact,
                measure=lambda wanted, index=index: replace(  # type: ignore[misc]
                    measured.whole(wanted).results[index], most_ulps=_REPEAT_ULPS
                ),
            )
            self.judged.findings.extend(repeated.findings)
            steady = steady and not repeated.findings
        return not steady

    def _batch(self, expected: Result) -> int | None:
        """Size of the batch. A table among the inputs may be larger: the outputs tell which size is the batch's."""
        if hasattr(self.parallel, "broadcast"):
            return rows_of(self.parallel, self.inputs)
        sizes = {array.shape[0] for array in expected.outputs if array is not None and array.ndim}
        given = {shape[0] for leaf in self.tested.leaves() if (shape := tuple(getattr(leaf, "shape", ())))}
        return max(sizes & given, default=rows_of(self.parallel, self.inputs))
