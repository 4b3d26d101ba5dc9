"""Changes one operation of a traced program at a time, and compares what is claimed with what the program computes.

    python tests/proof/mutants.py --count 20000 --seed 7

A mutant scales, negates, shifts, zeroes or rolls the result of one operation, gives it another argument or another
order of arguments, or changes an attribute or an element of a constant: within functions, loops and branches too, and
in the gradients and the updates of an optimizer, as the graph that was traced is what changes. Where a result of the
mutant is proved equal to the reference's, both are run on random inputs, of each batch size that the claim covers. A
proved result that differs is a hole in the algebra.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from changed_graphs import NOWHERE, Mutant, Place, can_change, places
from pairs_of_loops_and_shards import PAIRS
from proof_pairs import Pair

import harness
from harness.proof.claim import Proof, Question, answer
from harness.proof.graph import in_order
from harness.proof.programs import Given, Traced, traced

KINDS = ("scale", "negate", "shift", "zero", "roll", "rewire", "swap", "attribute", "attribute", "constant", "constant")
#: Within so much of the largest number, two results agree.
_ROUNDING = 1e-3
#: Batch sizes that are tried where a claim is about them.
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12)
_INVALID = (tf.errors.OpError, ValueError, TypeError, AttributeError, RuntimeError, OverflowError, AssertionError)
_ASSERTED = ("assertion failed", "item into a full list")
#: So many mutants of a program are tried before the next one is traced.
_IN_SUCCESSION = 25
_IN_ONE_PROCESS = 1000


@dataclass
class Subject:
    """A pair of programs, traced: for the shapes that it has, or for an unknown number of rows."""

    name: str
    pair: Pair
    given: Given
    any_rows: list[int]
    graphs: tuple[Traced, Traced]
    places: list[Place]
    _expected: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, pair: Pair, *, any_batch: bool) -> Subject:
        """Trace both programs."""
        given = Given.of(pair.inputs)
        shapes = given.shapes
        rows = next((shape[0] for shape in shapes if shape), 0)
        batch = [at for at, shape in enumerate(shapes) if shape and shape[0] == rows] if any_batch else []
        options: dict[str, Any] = {"gradients": pair.gradients, "any_rows": batch}
        one, other = (traced(fn, given, pair.variables, **options) for fn in (pair.parallel, pair.reference))
        return cls(name, pair, given, batch, (one, other), list(places(one.graph)))

    def proof(self, graph: Traced) -> Proof:
        """What is claimed of a mutant."""
        names = {id(variable.handle): f"variable {at}" for at, variable in enumerate(self.pair.variables)}
        starts = {id(v.handle): ("same", at) for at, group in enumerate(self.pair.same) for v in group}
        question = Question(lambda _: (graph, self.graphs[1]), self.given.shapes, starts=starts, names=names)
        return answer(question, any_batch=bool(self.any_rows))

    def values(self, made: Any, rows: int | None, seed: int) -> tuple[Any, ...]:
        """What a program computes on random inputs, of so many rows, and the variables after it."""
        drawn = np.random.default_rng(seed)
        inputs = []
        for number, at in enumerate(self.given.places):
            leaf = self.given.leaves[at].numpy()
            if rows is not None and number in self.any_rows:
                leaf = np.resize(leaf, (rows, *leaf.shape[1:]))
            # Some programs take logarithms.
            low = 0.1 if seed % 2 else -1.0
            inputs.append(
                tf.constant(drawn.uniform(low, 2.0, leaf.shape).astype(leaf.dtype) if leaf.dtype.kind == "f" else leaf)
            )
        before = [(variable, variable.numpy()) for variable in self._variables]
        for variable, value in before:
            if value.dtype.kind == "f":
                variable.assign(drawn.uniform(low, 1, value.shape).astype(value.dtype))
        for one, *others in self.pair.same:
            for other in others:
                other.assign(one)
        try:
            results = [result.numpy() for result in made(*inputs)]
            after = [variable.numpy() for variable in self.pair.variables]
        finally:
            for variable, value in before:
                variable.assign(value)
        return results, after

    @property
    def _variables(self) -> list[Any]:
        held = {id(v.handle): v for graph in self.graphs for v in graph.graph.variables if v.dtype.is_floating}
        return [*self.pair.variables, *(v for key, v in held.items() if key not in self._own)]

    @property
    def _own(self) -> set[int]:
        return {id(v.handle) for v in self.pair.variables}

    def expected(self, rows: int | None, seed: int) -> Any:
        """What the reference computes."""
        if (rows, seed) not in self._expected:
            made = self._expected.get("made")
            if made is None:
                made = self._expected["made"] = Mutant(self.graphs[1], NOWHERE, "none", 0).run()
            self._expected[rows, seed] = self.values(made, rows, seed)
        return self._expected[rows, seed]

    def _affected(self, place: Place) -> Callable[[int], bool]:
        """Whether a result may depend on an operation."""
        graph = self.graphs[0].graph
        reached = {place.path[0]}
        for op in in_order(graph):
            if any(each.name in reached for each in (*(t.op for t in op.inputs), *op.control_inputs)):
                reached.add(op.name)
        updates = any(graph.get_operation_by_name(name).op_def.is_stateful for name in reached)
        outputs = graph.outputs
        return lambda at: outputs[at].op.name in reached if at < len(outputs) else updates

    def holes(self, mutant: Mutant) -> tuple[list[str], Proof] | None:
        """(the results that are proved and differ, the proof); None if there is no such mutant."""
        try:
            graph = mutant.proved()
            if not mutant.changed:
                return None
        except (*_INVALID, IndexError):
            return None
        proof = self.proof(graph)
        affected = self._affected(mutant.place)
        claimed = [at for at, each in enumerate(proof.results) if each.proved and affected(at)]
        wrong: dict[str, str] = {}
        if claimed:
            made = mutant.run()
            every = proof.scope == "every batch size"
            step = int(proof.scope.split()[-2]) if proof.scope.startswith("every batch that") else 0
            sizes: list[int | None] = [None, *(n for n in _SIZES if every or (step and n % step == 0))]
            for rows, seed in [(None, 0), (None, 1), *((n, n) for n in sizes if n)]:
                theirs = self.expected(rows, seed)
                try:
                    ours = self.values(made, rows, seed)
                except tf.errors.OpError as error:
                    # If something is not proved, that may be what fails; and a proof is not about assertions, such as
                    # that a list holds no more than it may.
                    if proof.proved and not any(part in str(error) for part in _ASSERTED):
                        wrong["all"] = f"{type(error).__name__} with {rows} rows"
                    break
                for at in claimed:
                    result = proof.results[at]
                    if at < len(self.graphs[0].names):
                        pair = ours[0][at], theirs[0][at]
                    else:
                        number = int(result.name.split()[1])
                        pair = ours[1][number], theirs[1][number]
                    if _differ(*pair):
                        wrong[result.name] = f"with {rows} rows"
        return [f"{name} {why}" for name, why in wrong.items()], proof


def _differ(one: Any, other: Any) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    if one.dtype.kind != "f":
        return not np.array_equal(one, other)
    scale = max(1.0, float(np.max(np.abs(other[np.isfinite(other)]), initial=0.0)))
    known = ~np.isnan(one) & ~np.isnan(other)
    return not np.allclose(one[known], other[known], rtol=_ROUNDING, atol=_ROUNDING * scale)


def mutants(
    names: Sequence[str], devices: Any, count: int, seed: int, start: int = 0
) -> Iterator[tuple[int, Subject, Mutant]]:
    """So many mutants, from a number on, of each program in turn; some are none."""
    made: dict[Any, Subject | None] = {}
    for at in range(start, count):
        # Of each program some in succession, as it takes longer to trace it than to try a mutant.
        turn = at // _IN_SUCCESSION
        name = names[turn // 2 % len(names)]
        key = name, turn % 2 == 1
        if key not in made:
            try:
                made[key] = Subject.of(name, PAIRS[name](devices), any_batch=key[1])
            except Exception:
                if not key[1]:
                    raise
                made[key] = None  # it is not for every batch
        subject = made[key]
        if subject is not None:
            yield at, subject, _drawn(subject, random.Random(f"{seed} {at}"))


def _drawn(subject: Subject, drawn: random.Random) -> Mutant:
    kind = drawn.choice(KINDS)
    among = subject.places
    if kind == "constant":
        among = [place for place in among if place.op.type == "Const"]
    elif kind == "swap":
        among = [place for place in among if len(place.op.inputs) > 1]
    elif kind == "rewire":
        among = [place for place in among if len(place.op.inputs)]
    elif kind == "attribute":
        among = [place for place in among if any(can_change(*each) for each in place.op.node_def.attr.items())]
    return Mutant(subject.graphs[0], drawn.choice(among or subject.places), kind, drawn.randrange(1 << 30))


@dataclass
class Tally:
    """What was tried, in one process after another."""

    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    holes: list[str] = field(default_factory=list)
    ended: int = 0
    proved: int = 0
    partly: int = 0

    def add(self, kind: str, proved: bool, partly: bool, hole: str) -> None:
        """Count a mutant; print it if it is a hole."""
        self.kinds[kind] += 1
        self.proved += proved
        self.partly += partly
        if hole:
            self.holes.append(hole)
            print(f"HOLE {hole}", flush=True)
        if self.kinds.total() % 500 == 0:
            print(f"{self.kinds.total():,} mutants, {len(self.holes)} proved and different", flush=True)


def _judged(names: Sequence[str], given: argparse.Namespace) -> None:
    """Print a line for each mutant from a number on: its number, and what the tally counts."""
    devices = harness.configure("cpu:4")
    tf.autograph.set_verbosity(0)
    # So many in one process, as what was traced stays in memory.
    until = min(given.count, given.start + _IN_ONE_PROCESS)
    for at, subject, mutant in mutants(names, devices, until, given.seed, given.start):
        print(json.dumps([at]), flush=True)
        if (judged := subject.holes(mutant)) is not None:
            wrong, proof = judged
            what = f"{subject.name}: {mutant.changed} at {' / '.join(mutant.place.path)}: {', '.join(wrong)}"
            partly = any(each.proved for each in proof.results)
            print(json.dumps([at, mutant.kind, proof.proved, partly, what if wrong else ""]), flush=True)
    print(json.dumps([until - 1]), flush=True)


def tried(count: int, seed: int, only: Sequence[str] = ()) -> Tally:
    """Try so many mutants in processes of their own, as some mutants end TensorFlow."""
    tally, at = Tally(), -1
    while at < count - 1:
        command = [sys.executable, __file__, "--count", str(count), "--seed", str(seed), "--start", str(at + 1)]
        with subprocess.Popen(
            [*command, "--only", *only], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            before = at
            for line in process.stdout or ():
                at, *counted = json.loads(line)
                if counted:
                    tally.add(*counted)
        if at == before:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        tally.ended += process.returncode != 0
    return tally


def main() -> int:
    """Try mutants; print the holes and how many there are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="programs of these names")
    parser.add_argument("--start", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.start is not None:
        names = given.only or list(PAIRS)
        random.Random(given.seed).shuffle(names)
        _judged(names, given)
        return 0
    tally = tried(given.count, given.seed, given.only)
    shown = ", ".join(f"{count:,} {kind}" for kind, count in sorted(tally.kinds.items()))
    print(f"{tally.kinds.total():,} mutants of {len(given.only or PAIRS)} programs (seed {given.seed}; {shown})")
    print(f"{len(tally.holes)} proved and different; {tally.proved} proved, {tally.partly} in a part of the results")
    if tally.ended:
        print(f"{tally.ended} more ended the process of TensorFlow")
    return 1 if tally.holes else 0


if __name__ == "__main__":
    sys.exit(main())
