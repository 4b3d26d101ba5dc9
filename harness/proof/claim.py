"""What is proved, assumed and refuted about two programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError
from harness.lazy import tf
from harness.proof.algebra import Algebra
from harness.proof.computed import Computed
from harness.proof.graph import Run, TimeUp, start_values
from harness.proof.premises import without_lookup
from harness.proof.programs import NO_GRADIENT, Given, Traced, traced
from harness.proof.reasons import Reason, Reasons
from harness.proof.sentence import lines
from harness.proof.sizes import Indivisible, Size, Unprovable
from harness.proof.terms import Poly

THESE_SHAPES = "these shapes"
EVERY_BATCH = "every batch size"
#: In the names of the states of random generators: Keras's and TensorFlow's own.
_DRAWING = ("seed_generator", "StateVar")
#: Programs with more operations are proved for these shapes alone, as the cases of other shapes take as long each.
_MOST_OPS = 20_000
#: At most so many cases of the batch size modulo a number are proved one by one.
_MOST_CASES = 16


@dataclass(frozen=True, slots=True)
class ProofResult:
    """One output, gradient or variable: is it proved equal to the reference's?

    ``why`` and ``place`` say what blocks the proof, and the line of the program. ``refuted``: the programs differ in
    it for some inputs.
    """

    name: str
    proved: bool
    why: str = ""
    place: str = ""
    refuted: bool = False


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved about two programs, for every input and all values of the variables.

    ``scope`` says for which shapes: "these shapes", "every batch size", or "every batch that 4 divides". ``assumed`` is
    what the claim rests on. ``error`` says why there is no proof at all.
    """

    results: tuple[ProofResult, ...]
    scope: str = THESE_SHAPES
    assumed: tuple[str, ...] = ()
    error: str = ""

    @property
    def proved(self) -> bool:
        """Whether every result is proved."""
        return bool(self.results) and not self.error and all(each.proved for each in self.results)

    def __bool__(self) -> bool:
        raise TypeError("a Proof has no truth value; use .proved")

    def __str__(self) -> str:
        return "\n".join(lines(self))


@dataclass
class Question:
    """Two programs whose results are compared, for inputs of these shapes.

    ``graphs`` gives the graphs of the program and the reference, where the inputs of these numbers have an unknown size
    along axis 0. ``variables`` are the variables to compare after the call, or ``names`` has their names by their
    handles' ids.
    """

    graphs: Callable[[Sequence[int]], tuple[Traced, Traced]]
    shapes: Sequence[Sequence[int]]
    variables: Sequence[Any] = ()
    starts: Mapping[int, Any] = field(default_factory=dict)
    names: Mapping[int, str] | None = None
    #: What the program has in the place of variables of the reference, which it does not use: by the handles' ids.
    copies: Mapping[int, int] = field(default_factory=dict)
    #: By the monotonic clock: what is not proved by then stays so.
    deadline: float | None = None
    #: How many operations were evaluated last.
    ops: int = 0
    #: What was evaluated for these shapes.
    computed: Computed | None = None

    def variable_names(self, one: Any, other: Any) -> Mapping[int, str]:
        """Names of the variables to compare after the call, by their handles' ids."""
        if self.names is not None:
            return self.names
        found = {id(_handle(variable)): variable.name for variable in self.variables}
        captured = [{id(each.handle): each.name for each in graph.variables} for graph in (one, other)]
        for key, name in captured[0].items():
            # The state of a random generator advances with the numbers drawn.
            if key in captured[1] and not any(part in name for part in _DRAWING):
                found.setdefault(key, name)
        return found


def prove(
    parallel: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Mapping[str, Any],
    *,
    variables: Iterable[Any] = (),
    gradients: bool | None = None,
    same: Iterable[tuple[Any, Any]] = (),
) -> Proof:
    """Prove that two programs compute the same, for every input and all values of the variables. Neither is run.

    Both are traced into graphs, which are evaluated over one algebra (see "What a proof says"). What is proved holds in
    real arithmetic: rounding, overflow and NaN are outside of it. What is not proved may still be equal.

    Args:
        parallel: a callable over ``**inputs``.
        reference: another one.
        inputs: names to arrays, tensors, or nests of them; their shapes and types matter, not their values. Other
            values are passed on unchanged.
        variables: variables that both use. Gradients are taken for them, and their values after the call are compared,
            as are those of other variables that both programs use.
        gradients: compare the gradients of the outputs with respect to the floating inputs and to ``variables``, for
            any upstream gradient. ``None``: if there are ``variables`` and TensorFlow can differentiate both programs
            (it cannot differentiate a step that takes gradients of ``tf.recompute_grad``).
        same: pairs of variables that start with equal values. It is assumed, not checked.

    Returns:
        For each output, gradient and variable whether it is proved, and if not, what blocks it.

    Examples:
        >>> proof = harness.prove(harness.make_parallel(model, devices), model, {"x": x})
        >>> proof.proved
        True

    Raises:
        UsageError: an argument is invalid.
        Exception: what a program raises while it is traced.
    """
    for name, fn in (("parallel", parallel), ("reference", reference)):
        if not callable(fn):
            raise UsageError(
                f"{name}={fn!r} is not callable; give a function that takes the inputs as keyword arguments"
            )
    if not isinstance(inputs, Mapping):
        raise UsageError(f"inputs= is of type {type(inputs).__name__}; accepted: a mapping of argument names to arrays")
    named = list(variables)
    wanted = bool(named) if gradients is None else gradients
    given = Given.of(inputs)
    starts, assumed = _starts(same)

    def graphs(any_rows: Sequence[int]) -> tuple[Traced, Traced]:
        nonlocal wanted
        try:
            with tf.device(None):
                one, other = (
                    traced(fn, given, named, gradients=wanted, any_rows=any_rows) for fn in (parallel, reference)
                )
        except (LookupError, NotImplementedError):
            if not wanted or gradients:
                raise
            wanted = False
            return graphs(any_rows)
        return one, other

    return answer(Question(graphs, given.shapes, named, starts), assumed)


def answer(question: Question, assumed: tuple[str, ...] = (), *, any_batch: bool = True) -> Proof:
    """What is proved of a question. With ``any_batch``, other batch sizes are tried too."""
    graphs = question.graphs(())
    try:
        found = _compared(question, *graphs, question.shapes)
    except (TimeUp, RecursionError) as error:
        why = "the time limit" if isinstance(error, TimeUp) else "operations that are joined too deep"
        unproved = tuple(ProofResult(name, False, why) for name in graphs[0].names)
        return Proof(unproved, assumed=assumed, error=why)
    whole = any_batch and bool(found) and all(each.proved for each in found)
    reach = _reach(question, found) if whole else THESE_SHAPES
    return Proof(tuple(found), reach, assumed)


def _starts(same: Iterable[tuple[Any, Any]]) -> tuple[dict[int, Any], tuple[str, ...]]:
    """(keys of the variables that are assumed to start with equal values, by their handles' ids, what is assumed)."""
    groups: list[dict[int, Any]] = []
    for pair in same:
        one = {id(_handle(each)): each for each in pair}
        joined = [group for group in groups if group.keys() & one.keys()]
        groups = [group for group in groups if group not in joined]
        for group in joined:
            one = {**group, **one}
        groups.append(one)
    keys = {key: ("same", number) for number, group in enumerate(groups) for key in group}
    assumed = [" and ".join(each.name for each in group.values()) + " start equal" for group in groups]
    return keys, ("real arithmetic", *assumed)


def _handle(variable: Any) -> Any:
    held = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", None)
    if not isinstance(held, tf.Variable):
        raise UsageError(f"same= contains an object of type {type(variable).__name__}; accepted: pairs of tf.Variable")
    return held.handle


def _compared(question: Question, one: Traced, other: Traced, shapes: Sequence[Sequence[Any]]) -> list[ProofResult]:
    """What is proved for inputs of these shapes."""
    algebra = Algebra()
    run_r = Run(algebra, deadline=question.deadline, placeholders=other.placeholders)
    run_p = Run(algebra, deadline=question.deadline, placeholders=one.placeholders)
    results_r = run_r.graph(other.graph, start_values(run_r, other.graph, question.starts, shapes), other.results)
    mark = len(algebra.atoms)
    results_p = run_p.graph(
        one.graph, start_values(run_p, one.graph, question.starts, shapes, question.copies), one.results
    )
    question.ops = len(run_r.seen) + len(run_p.seen)
    question.computed = question.computed or Computed.of(run_p, run_r, results_p)
    if len(one.names) != len(other.names):
        why = f"the programs have {len(one.names)} and {len(other.names)} results"
        return [ProofResult(name, False, why, refuted=True) for name in one.names]
    reasons = Reasons(algebra, mark, run_p)
    found: list[tuple[ProofResult, Any]] = []
    for name, wanted, p, r in zip(one.names, other.names, results_p, results_r, strict=True):
        if name == wanted:
            found.append((_result(reasons, name, p, r), r))
        else:
            alike = name.removesuffix(NO_GRADIENT) == wanted.removesuffix(NO_GRADIENT)
            why = "only one of the programs has this gradient" if alike else f"the reference has {wanted} there"
            found.append((ProofResult(name.removesuffix(NO_GRADIENT), False, why, refuted=not alike), r))
    names = question.variable_names(one.graph, other.graph)
    refs = {ref.key: ref for run in (run_r, run_p) for ref in run.state}
    for key, name in names.items():
        if key in refs:
            p, r = (run.state[refs[key]] if refs[key] in run.state else run.read(refs[key]) for run in (run_p, run_r))
            found.append((_result(reasons, f"{name} after the call", p, r), r))
    if run_p.fails and not run_r.fails:
        return [ProofResult(each.name, False, run_p.fails) for each, _ in found]
    known = [value for each, value in found if each.proved and isinstance(value, Poly)]
    doubted = without_lookup(algebra, known)
    return [
        ProofResult(each.name, False, "numbers that no result looks up may lie outside of their rows")
        if each.proved and isinstance(value, Poly) and value.id in doubted
        else each
        for each, value in found
    ]


def _result(reasons: Reasons, name: str, p: Any, r: Any) -> ProofResult:
    if p is r and (p is None or isinstance(p, Poly)):
        return ProofResult(name, True)
    reason: Reason = reasons.of(p, r)
    return ProofResult(name, False, reason.why, reason.place, reason.refuted)


def _reach(question: Question, found: Sequence[ProofResult]) -> str:
    """For which batch sizes the results are proved too, where all are for these shapes."""
    shapes = question.shapes
    rows = next((shape[0] for shape in shapes if shape), 0)
    batch = [at for at, shape in enumerate(shapes) if shape and shape[0] == rows]
    if not batch or not rows or question.ops > _MOST_OPS:
        return THESE_SHAPES
    try:
        graphs = question.graphs(batch)
    except Exception:  # noqa: BLE001 - the programs may raise anything where the batch size is unknown
        return THESE_SHAPES
    names = [each.name for each in found]

    def holds(size: Any) -> bool:
        own = [(size, *shape[1:]) if at in batch else shape for at, shape in enumerate(shapes)]
        known = _compared(question, *graphs, own)
        return [each.name for each in known] == names and all(each.proved for each in known)

    step = 1
    while step <= _MOST_CASES:
        try:
            if not holds(Size((0, step))):
                return THESE_SHAPES
            rests = [Size((rest, step)) for rest in range(1, step)]
            every = all(map(holds, [*rests, *range(1, step)]))
        except Indivisible as error:
            step *= error.divisor
        except (Unprovable, TimeUp, RecursionError):
            return THESE_SHAPES
        else:
            return EVERY_BATCH if every else f"every batch that {step} divides"
    return THESE_SHAPES
