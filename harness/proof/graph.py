"""Evaluates the graph of a program over the algebra: calls are inlined, branches that are decided are taken."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from harness._tensorflow import graph_of_function
from harness.proof.bodies import body_of, run_kernel
from harness.proof.evaluation import Chosen, Elementwise, Evaluation, Lost, Ref, Rule, Undefined
from harness.proof.inference import variable_shape
from harness.proof.loops import run_while
from harness.proof.rules.sizes_of import depends_on_rows, of_sizes
from harness.proof.rules.table import FOR_COMPLEX, OF_ROWS, TABLE
from harness.proof.sizes import Fails, Indivisible, Unprovable
from harness.proof.terms import FLOATS, Form, Poly

#: A constant with more elements is not computed from others.
_LARGEST = 1 << 20
_BY_NAME = {"then_branch": True, "else_branch": False}


class TimeUp(Exception):
    """The proof has taken as long as it may."""


@dataclass(slots=True)
class Seen:
    """An operation that was evaluated; ``name`` is the way to it through calls, branches and loops."""

    name: str
    op: Any
    inputs: list[Any]
    outputs: list[Any]


@dataclass
class Run(Evaluation):
    """Evaluates one graph."""

    #: By the monotonic clock; ``None`` for no limit.
    deadline: float | None = None
    seen: list[Seen] = field(default_factory=list)
    #: What raises an error whenever the program runs.
    fails: str = ""
    #: The calls that led here: each name ends with a slash.
    calls: str = ""
    #: The numbers and names of the results that upstream gradients belong to, by the names of their placeholders.
    placeholders: dict[str, tuple[int, str]] = field(default_factory=dict)

    def graph(self, graph: Any, given: Sequence[Any], wanted: Sequence[Any] | None = None) -> list[Any]:
        """The values of the ``wanted`` tensors of a graph, or of its outputs, for these arguments."""
        env = {tensor.name: value for tensor, value in zip(graph.inputs, given, strict=True)}
        for op in in_order(graph):
            if op.outputs and op.outputs[0].name in env:
                continue
            args = [env[tensor.name] for tensor in op.inputs]
            results = self.op(op, args, env)
            self.seen.append(Seen(self.calls + op.name, op, args, results))
            for tensor, value in zip(op.outputs, results, strict=True):
                env[tensor.name] = value
        wanted = graph.outputs if wanted is None else wanted
        return [None if tensor is None else env[tensor.name] for tensor in wanted]

    def op(self, op: Any, args: list[Any], env: dict[str, Any]) -> list[Any]:
        """The results of an operation; what is not understood is equal to nothing."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise TimeUp
        refs = [arg for arg in args if isinstance(arg, Ref)]
        rule = TABLE.get(op.type)
        only_shape = rule.only_shape if isinstance(rule, Rule) else ()
        lost = next((arg for at, arg in enumerate(args) if isinstance(arg, Lost) and at not in only_shape), None)
        # What stands for any upstream gradient depends on nothing that leads to it.
        if lost is not None and op.type not in _INLINED and op.name not in self.placeholders:
            self._forget(refs, lost.why)
            return [lost] * len(op.outputs)
        if not op.outputs and not refs:
            return []  # an assertion, a print, or nothing
        before, self.calls = self.calls, f"{self.calls}{op.name}/"
        try:
            return self._checked(op, self._op(op, args, env))
        except Indivisible:
            raise
        except Unprovable as error:
            why = str(error)
            if isinstance(error, Fails) and not self.undecided:
                self.fails = self.fails or why
        # A rule that does not fit the form of an op fails so: the result is equal to nothing then.
        except (ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError) as error:
            why = f"{op.type}: {type(error).__name__}: {error}"
        finally:
            self.calls = before
        self._forget(refs, why)
        return [self.unknown(op, index, why) for index in range(len(op.outputs))]

    def _forget(self, refs: Sequence[Ref], why: str) -> None:
        """What failed may have changed its variables, in any way."""
        for ref in refs:
            self.state[ref] = self.alg.unique(why, ref.shape or (), ref.dtype)

    def _checked(self, op: Any, made: Any) -> list[Any]:
        """The results, which have the shapes and types that TensorFlow says."""
        results = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(results) != len(op.outputs):
            raise Unprovable(f"{op.type} has {len(op.outputs)} results, not {len(results)}")
        for output, result in zip(op.outputs, results, strict=True):
            dtype = output.dtype.base_dtype.name
            if not isinstance(result, Poly) or dtype in ("variant", "resource"):
                continue
            rank = output.shape.rank
            sizes = [] if rank is None else list(output.shape)
            fits = rank is None or (
                rank == len(result.shape) and all(a is None or a == b for a, b in zip(sizes, result.shape, strict=True))
            )
            if not fits or dtype != result.dtype:
                raise Unprovable(f"{op.type} gave {result.dtype}{list(result.shape)}, not {dtype}{sizes}")
        return results

    def _op(self, op: Any, args: list[Any], env: dict[str, Any]) -> Any:
        rule = TABLE.get(op.type) or _CONTROL.get(op.type)
        if op.type in ("FakeParam", "OptionalNone"):
            return [Undefined("what a branch that is not taken hands on")]
        if op.type == "Placeholder" or op.name in self.placeholders:
            return self._placeholder(op, env)
        types = {arg.dtype for arg in args if isinstance(arg, Poly)}
        if any(dtype.startswith("complex") for dtype in types) and op.type in TABLE and op.type not in FOR_COMPLEX:
            rule = None
        if (known := self._computed(op, args)) is not None:
            return known
        if rule is None:
            return self._opaque(op, args)
        times_number = op.type in ("Mul", "Div", "RealDiv") and any(map(self.alg.is_number, args))
        if op.type in OF_ROWS and not times_number:
            args = [self.alg.row_of_part(arg) if isinstance(arg, Poly) else arg for arg in args]
        if isinstance(rule, Rule):
            return self.by_rule(op, args, rule)
        if isinstance(rule, Elementwise):
            return self.by_elements(op, args, rule)
        return rule(self, op, *args)

    def _placeholder(self, op: Any, env: dict[str, Any]) -> Any:
        """An upstream gradient, which has the shape of its result."""
        number, of = self.placeholders.get(op.name, (0, ""))
        like = env.get(of)
        if not isinstance(like, Poly):
            raise Unprovable("an argument that is not given")
        return self.alg.of(self.alg.atom("upstream", number, (), like.shape, like.dtype))

    def _computed(self, op: Any, args: list[Any]) -> Any:
        """The results of an integer operation on constants."""
        whole = all(output.dtype.is_integer or output.dtype.is_bool for output in op.outputs)
        if not args or not whole or op.op_def.is_stateful or op.type in _CONTROL:
            return None
        if op.type in ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"):
            return None
        # What floats give may depend on rounding.
        if not all(isinstance(arg, Poly) and arg.dtype not in FLOATS for arg in args):
            return None
        if any(not isinstance(size, int) for arg in args for size in arg.shape):
            return None
        values = [self.alg.value(arg) for arg in args]
        if any(value is None or value.size > _LARGEST for value in values):
            return None
        if any(depends_on_rows(value) for value in values):
            return of_sizes(self, op, values)
        return [self.alg.const(each) for each in run_kernel(op, values)]

    def _opaque(self, op: Any, args: list[Any]) -> list[Poly]:
        """An operation without a rule: the same for the same arguments, if that is all that it depends on."""
        if op.op_def.is_stateful or not all(isinstance(arg, Poly) for arg in args):
            raise Unprovable(f"{op.type} has a state, or random results")
        if any(output.dtype.name in ("variant", "resource") for output in op.outputs):
            raise Unprovable(f"no rule for {op.type}")
        return self.by_rule(op, args, Rule(lambda op, args, index: []), known=False)

    def unknown(self, op: Any, index: int, why: str) -> Any:
        """A result that is equal to nothing."""
        output = op.outputs[index]
        shape: Any = tuple(output.shape) if output.shape.is_fully_defined() else None
        if shape is None or output.dtype.name in ("variant", "resource"):
            return Lost(why)
        return self.alg.unique(why, shape, output.dtype.base_dtype.name)


def _call(run: Run, op: Any, *args: Any) -> list[Any]:
    return run.graph(body_of(op, "f"), args)


def _if(run: Run, op: Any, condition: Poly, *args: Any) -> list[Any]:
    if not isinstance(condition, Poly):
        raise Unprovable("a condition that is unknown")
    known = run.alg.value(condition)
    if known is not None:
        if known.shape != ():
            raise Unprovable("a condition that is no scalar")
        return run.graph(body_of(op, "then_branch" if bool(known[()]) else "else_branch"), args)
    if condition.dtype != "bool" or condition.shape != ():
        raise Unprovable("a condition that is no scalar of type bool")
    before = dict(run.state)
    branches = []
    run.undecided += 1
    for name, taken in _BY_NAME.items():
        run.state.clear()
        run.state.update(before)
        known = [_within(arg, condition, taken) for arg in args]
        branches.append((run.graph(body_of(op, name), known), dict(run.state)))
    run.undecided -= 1
    (first, one), (second, other) = branches
    run.state.clear()
    changed: dict[Ref, Any] = {}
    for ref in {*one, *other}:
        pair = [each[ref] if ref in each else run.read(ref) for each in (one, other)]
        changed[ref] = _chosen(run, condition, pair[0], pair[1])
    run.state.update(changed)
    return [_chosen(run, condition, a, b) for a, b in zip(first, second, strict=True)]


def _within(arg: Any, condition: Poly, taken: bool) -> Any:
    """An argument of a branch that is taken if the condition is ``taken``."""
    if isinstance(arg, Chosen) and arg.condition is condition:
        return arg.then if taken else arg.otherwise
    return arg


def _chosen(run: Run, condition: Poly, one: Any, other: Any) -> Any:
    if one is other or isinstance(other, Undefined):
        return one
    if isinstance(one, Undefined):
        return other
    if isinstance(one, Ref) and one == other:
        return one
    if not isinstance(one, Poly) or not isinstance(other, Poly):
        lost = next((each for each in (one, other) if isinstance(each, Lost)), None)
        return lost or Chosen("a branch chooses a variable", condition, one, other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return Chosen("branches with results of two shapes", condition, one, other)
    if one.dtype not in FLOATS:
        return run.alg.elementwise("SelectV2", (), [condition, one, other], one.dtype, Form(total=True))
    # With m as 1 or 0: other + m one - m other, in which parts of either join.
    number = run.alg.elementwise("Taken", (), [condition], one.dtype, Form(total=True))
    first, second = (run.alg.mul(number, each) for each in (one, other))
    return run.alg.add(run.alg.add(other, first), second, -1)


def _case(run: Run, op: Any, index: Poly, *args: Any) -> list[Any]:
    branches, known = op.get_attr("branches"), run.alg.value(index) if isinstance(index, Poly) else None
    if known is None or known.dtype == object:
        raise Unprovable("a branch that is not known")
    at = int(known) if 0 <= known < len(branches) else len(branches) - 1
    return run.graph(graph_of_function(op.graph, branches[at].name), args)


#: What is lost in them is lost within.
_INLINED = ("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "Case", "StatelessCase")
_CONTROL: dict[str, Any] = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), _call),
    **dict.fromkeys(("If", "StatelessIf"), _if),
    **dict.fromkeys(("Case", "StatelessCase"), _case),
    **dict.fromkeys(("While", "StatelessWhile"), run_while),
}


def in_order(graph: Any) -> list[Any]:
    """Operations after those that they need; otherwise as they were made: the order of effects on a variable."""
    done: dict[str, Any] = {}
    for last in graph.get_operations():
        stack = [last]
        while stack:
            op = stack[-1]
            needed = [*(tensor.op for tensor in op.inputs), *op.control_inputs]
            left = [each for each in needed if each.graph is graph and each.name not in done]
            if left and op.name not in done:
                stack.extend(left)
            else:
                done.setdefault(op.name, op)
                stack.pop()
    return list(done.values())


def start_values(
    run: Run,
    graph: Any,
    starts: Mapping[int, Any],
    inputs: Sequence[Sequence[Any]],
    copies: Mapping[int, int] = MappingProxyType({}),
) -> list[Any]:
    """The values of a graph's arguments: inputs of these shapes, then what it captures.

    Variables with one value in ``starts``, by their handles' ids, begin with equal values. ``copies`` count as those
    that they are copies of.
    """
    outside = {inner.name: outer for outer, inner in graph.captures}
    given: list[Any] = []
    count = 0
    for tensor in graph.inputs:
        outer = outside.get(tensor.name)
        if outer is None:
            atom = run.alg.atom("input", count, (), tuple(inputs[count]), tensor.dtype.name)
            given.append(run.alg.of(atom))
            count += 1
        else:
            given.append(_captured(run, outer, starts, copies))
    return given


def _captured(run: Run, outer: Any, starts: Mapping[int, Any], copies: Mapping[int, int]) -> Any:
    if outer.dtype.name == "resource":
        found, key = variable_shape(outer), copies.get(id(outer), id(outer))
        return Ref(key) if found is None else Ref(key, starts.get(key, key), *found)
    if outer.dtype.name == "variant" or not hasattr(outer, "numpy"):
        return Lost("a captured value that is no tensor")
    return run.alg.const(outer.numpy())
