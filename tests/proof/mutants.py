"""Changes one operation of a program at a time, and compares what is claimed with what the program computes.

    python tests/proof/mutants.py --count 20000 --seed 7

A mutant scales, negates, shifts, zeroes or rolls the result of one operation, or gives the result of an earlier one in
its place, also within functions, loops and branches. Where a result of the mutant is proved equal to the reference's,
both are run on random inputs. A proved result that differs is a hole in the algebra.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf
from pairs_of_loops_and_shards import PAIRS
from proof_pairs import Pair

import harness
from harness._tensorflow import op_callback
from harness.proof.claim import ProofResult, examine

KINDS = ("scale", "negate", "shift", "zero", "roll", "rewire")
#: Within so much of the largest number, two results agree.
_ROUNDING = 1e-3


@dataclass
class Mutant:
    """A program with one operation changed: the ``number``-th that gives a floating tensor with elements."""

    fn: Callable[..., Any]
    kind: str
    number: int
    #: How many operations there are.
    count: int = 0
    changed: str = ""
    _earlier: list[Any] = field(default_factory=list)
    _inside: bool = False

    autograph_info__: Any = None

    def __call__(self, **inputs: Any) -> Any:
        self.count, self._earlier, self._inside = 0, [], False
        with op_callback(self._on_op):
            return self.fn(**inputs)

    def _on_op(self, kind: str, inputs: Any, attrs: Any, outputs: Any, graph: Any) -> Any:
        outputs = tuple(outputs)
        first = outputs[0] if outputs else None
        if graph is None or self._inside or first is None or not first.dtype.is_floating or kind == "Placeholder":
            return outputs
        self.count += 1
        if self.count - 1 != self.number:
            self._earlier.append(first)
            return outputs
        self.changed = f"{self.kind} of {kind}"
        self._inside = True
        try:
            return (self._mutated(first), *outputs[1:])
        finally:
            self._inside = False

    def _mutated(self, x: Any) -> Any:
        if self.kind == "scale":
            return x * tf.constant(2.0, x.dtype)
        if self.kind == "negate":
            return -x
        if self.kind == "shift":
            return x + tf.constant(1.0, x.dtype)
        if self.kind == "zero":
            return x * tf.constant(0.0, x.dtype)
        if self.kind == "roll":
            return tf.roll(x, 1, 0) if x.shape.rank else x * tf.constant(3.0, x.dtype)
        alike = (y for y in reversed(self._earlier) if y.graph is x.graph and y.shape == x.shape and y.dtype == x.dtype)
        return next(alike, x * tf.constant(0.5, x.dtype))


def size_of(pair: Pair) -> int:
    """How many operations of a program can be changed."""
    counting = Mutant(pair.parallel, "none", -1)
    values(counting, pair)
    return counting.count


def values(fn: Callable[..., Any], pair: Pair, seed: int = 0) -> dict[str, Any]:
    """What a program computes on random inputs, by the names that its results have in a proof."""
    drawn = np.random.default_rng(seed)
    inputs = {
        name: tf.constant(x if x.dtype.kind != "f" else drawn.uniform(0.1, 2.0, x.shape).astype(x.dtype))
        for name, x in pair.inputs.items()
    }
    before = [(variable, variable.numpy()) for variable in pair.variables]
    for variable, value in before:
        if value.dtype.kind == "f":
            variable.assign(drawn.uniform(-1, 1, value.shape).astype(value.dtype))
    for one, other in pair.same:
        other.assign(one)
    names: list[str] = []

    def run(**inputs: Any) -> list[Any]:
        names.clear()
        sources = [x for x in inputs.values() if x.dtype.is_floating] if pair.gradients else []
        with tf.GradientTape() as tape:
            for source in sources:
                tape.watch(source)
            outputs = fn(**inputs)
        from harness.proof.programs import names_of

        pairs = [
            (n, leaf) for n, leaf in zip(names_of(outputs), tf.nest.flatten(outputs), strict=True) if leaf is not None
        ]
        names.extend(name for name, _ in pairs)
        results = [tf.convert_to_tensor(leaf) for _, leaf in pairs]
        targets = [leaf for leaf in results if leaf.dtype.is_floating]
        if pair.gradients and targets:
            seeds = [tf.constant(np.random.default_rng(5).uniform(-1, 1, t.shape).astype("float32")) for t in targets]
            of = [*sources, *pair.variables]
            for at, gradient in enumerate(tape.gradient(targets, of, output_gradients=seeds)):
                names.append(f"gradient {at}")
                results.append(tf.constant(0.0) if gradient is None else tf.convert_to_tensor(gradient))
        return results

    run.autograph_info__ = None  # type: ignore[attr-defined]
    try:
        found = {name: result.numpy() for name, result in zip(names, tf.function(run)(**inputs), strict=True)}
        for at, (variable, _) in enumerate(before):
            found[f"variable {at}"] = variable.numpy()
    finally:
        for variable, value in before:
            variable.assign(value)
    return found


def holes(pair: Pair, mutant: Mutant) -> tuple[list[str], bool]:
    """(the results of a mutant that are proved and differ, whether all results are proved)."""
    named = {id(variable.handle): f"variable {at}" for at, variable in enumerate(pair.variables)}
    options: dict[str, Any] = {"variables": pair.variables, "gradients": pair.gradients, "same": pair.same}
    try:
        proof = examine(mutant, pair.reference, pair.inputs, names=named, any_batch=False, **options)
    except (tf.errors.OpError, ValueError, TypeError):
        return [], False  # A tape may not survive the change.
    claimed = [each for each in proof.results if each.proved]
    if not claimed:
        return [], False
    place = mutant.count, mutant.changed
    ours, theirs = values(mutant, pair), values(pair.reference, pair)
    if (mutant.count, mutant.changed) != place:
        raise RuntimeError(f"one trace changed {place}, the other {mutant.count, mutant.changed}")
    wrong = [name for each in claimed for name in [_key(each, proof.results)] if _differ(ours[name], theirs[name])]
    return wrong, proof.proved


def _key(result: ProofResult, results: tuple[ProofResult, ...]) -> str:
    gradients = [each.name for each in results if each.name.startswith("gradient")]
    places = [at for at, each in enumerate(r for r in results if r.name.startswith("gradient")) if each is result]
    if result.name.startswith("gradient"):
        return f"gradient {places[0] if places else gradients.index(result.name)}"
    return result.name.removesuffix(" after the call")


def _differ(one: Any, other: Any) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    if one.dtype.kind != "f":
        return not np.array_equal(one, other)
    scale = max(1.0, float(np.max(np.abs(other), initial=0.0)))
    return not np.allclose(one, other, rtol=0, atol=_ROUNDING * scale, equal_nan=True)


def mutants(names: list[str], devices: Any, count: int, seed: int) -> Iterator[tuple[str, Mutant, Pair]]:
    """So many mutants, of each program in turn."""
    drawn = random.Random(seed)
    made = {}
    for at in range(count):
        name = names[at % len(names)]
        if name not in made:
            # Tapes around the program do not survive that its ops are replaced.
            pair = replace(PAIRS[name](devices), gradients=False)
            try:
                made[name] = pair, size_of(pair)
            except tf.errors.OpError:  # Some tapes do not survive that their ops are watched.
                made[name] = pair, 0
        pair, size = made[name]
        if not size:
            continue
        yield name, Mutant(pair.parallel, drawn.choice(KINDS), drawn.randrange(size)), pair


def main() -> int:
    """Try mutants; print the holes and how many there are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="programs whose names contain one of these")
    given = parser.parse_args()
    devices = harness.configure("cpu:4")
    tf.autograph.set_verbosity(0)
    names = [name for name in PAIRS if not given.only or any(part in name for part in given.only)]
    random.Random(given.seed).shuffle(names)
    found = proved = tried = 0
    for name, mutant, pair in mutants(names, devices, given.count, given.seed):
        wrong, whole = holes(pair, mutant)
        proved += whole
        tried += 1
        if wrong:
            found += 1
            print(f"HOLE {name}: {mutant.changed} (operation {mutant.number}): {', '.join(wrong)}", flush=True)
    print(f"{tried:,} mutants (seed {given.seed}): {found} proved and different, {proved} proved")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
