"""Joins a proof with a verification: what is proved for every input, and what was only tested."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence, Set
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.judgement.repeated import judge_repeated
from harness.judgement.runs import Mode, Program
from harness.judgement.state import named_variables
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import names_of, wide
from harness.judgement.waiting import judge_idle_reads
from harness.lazy import tf
from harness.proof.claim import Proof, Question, answer
from harness.proof.programs import NO_GRADIENT, Traced
from harness.proof.sentence import claim, why
from harness.records import Finding

if TYPE_CHECKING:
    from harness.judgement.diagnosis.question import Question as Difference
    from harness.judgement.examine import Examination

#: After so long, what is not proved yet counts as tested.
_LIMIT_S = 60.0
#: So many units in the last place of the largest element are few.
_FEW_ULPS = 256.0
#: The modes in which a graph is run; the first is the cheaper one to prove.
_GRAPHS: tuple[Mode, ...] = ("graph", "dynamic")


class Proving(NamedTuple):
    """A proof of what was compared, and what devices do in vain, as the graphs show."""

    proof: Proof | None = None
    needless: Sequence[Finding] = ()


def proved(examination: Examination, *, any_batch: bool) -> Proving:
    """Prove what was compared, from the graphs that were run. No proof if none were: it is about graphs.

    Other batch sizes are tried where graphs for an unknown size were run, or with ``any_batch``, which traces them. An
    error within the proof makes it no proof, and is recorded in it.
    """
    run: list[Mode] = [mode for mode in _GRAPHS if mode in examination.traces]
    if not run or examination.programs == 0:
        return Proving()
    names = {}
    watched = {id(variable) for variable in examination.shared.variables}
    for variable, name in named_variables(examination.variables, examination.state):
        if id(variable) in watched and isinstance(variable, tf.Variable):
            names[id(variable.handle)] = name
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the runs have shown them
            return _answered(examination, run[0], names, any_batch=any_batch or "dynamic" in run)
    # A boundary: whatever goes wrong in a proof, the programs were tested.
    except Exception as error:  # noqa: BLE001
        return Proving(Proof((), error=f"{type(error).__name__}: {error}".splitlines()[0][:200]))


def _answered(examination: Examination, mode: Mode, names: Mapping[int, str], *, any_batch: bool) -> Proving:
    programs = examination.tested, examination.single

    def graphs(any_rows: Sequence[int]) -> tuple[Traced, Traced]:
        with tf.device(None):
            one, other = (_traced(program, "dynamic" if any_rows else mode) for program in programs)
        return one, other

    # The last argument is the number 1.
    tensors = tf.nest.flatten(examination.tested.arguments(mode), expand_composites=True)
    shapes = [*(tuple(each.shape) for each in tensors), ()]
    copies = {
        id(examination.shared.of_parallel(each).handle): id(each.handle)
        for each in examination.shared.variables
        if id(each) in examination.shared.copies
    }
    question = Question(graphs, shapes, names=names, copies=copies, deadline=monotonic() + _LIMIT_S)
    assumed = [f"{names[key]} of both programs start equal" for key in copies.values() if key in names]
    proof = answer(question, ("real arithmetic", *assumed), any_batch=any_batch)
    if question.computed is None:
        return Proving(proof)
    evidence, devices = examination.traces[mode], examination.devices
    repeated = judge_repeated(evidence, devices, question.computed, mode)
    return Proving(proof, (*repeated, *judge_idle_reads(evidence, devices, question.computed, mode)))


def _traced(program: Program, mode: Mode) -> Traced:
    """The graph of a program in this mode, with the results that are compared."""
    function = program.function(mode)
    outputs, gradients = function.structured_outputs
    names, results = [], []
    for name, leaf in zip(names_of(outputs), tf.nest.flatten(outputs), strict=True):
        parts = tf.nest.flatten(leaf, expand_composites=True)
        for number, part in enumerate(parts):
            if tf.is_tensor(part):
                names.append(name if len(parts) == 1 else f"{name}, tensor {number}")
                results.append(part)
    if program.gradients:
        for source, gradient in zip(program.source_names(), gradients, strict=True):
            names.append(f"gradient for {source}" + (NO_GRADIENT if gradient is None else ""))
            if isinstance(gradient, tf.IndexedSlices):
                # The function is made, and this becomes no part of it.
                with function.graph.as_default():
                    gradient = tf.convert_to_tensor(gradient)
            results.append(gradient)
    return Traced(function.graph, tuple(names), program.upstreams(mode), tuple(results))


def with_proof(reason: str, proof: Proof | None) -> str:
    """The reason of a PASS with what was proved."""
    if proof is None or not any(each.proved for each in proof.results):
        return reason
    if proof.proved:
        return f"{claim(proof)}, and every op ran where it should"
    return f"{reason}. {claim(proof)}"


def refutations(proof: Proof | None) -> dict[str, str]:
    """Why results differ for some inputs, by their names, where the proof shows it."""
    return {each.name: why(each) for each in (proof.results if proof is not None else ()) if each.refuted}


def is_rounding(proof: Proof | None, exact: Set[tuple[str, str]], question: Difference) -> bool:
    """Whether all that differs is proved equal, and differs by no more than rounding may give.

    ``exact``: mode and name of what has to be equal to the last bit.
    """
    if not _is_proved(proof, question) or any((question.mode, leaf.name) in exact for leaf in question.wrong):
        return False
    return all(_near(leaf.found, leaf.expected) for leaf in question.wrong)


def _is_proved(proof: Proof | None, question: Difference) -> bool:
    """Whether all that differs, and is the same in each run, is proved equal."""
    proved = {each.name for each in proof.results if each.proved} if proof is not None else set()
    return bool(question.wrong) and not question.unsteady and all(leaf.name in proved for leaf in question.wrong)


def _near(found: Any, expected: Any) -> bool:
    """Whether no element is off by more than 256 units in the last place of the largest one (3e-5 of it in float32).

    Rounding may give that, where it changes the side of a ReLU at 0. In half precision, the root of epsilon is less.
    """
    if found is None or expected is None or found.shape != expected.shape or found.dtype.kind not in "fV":
        return False
    have, want = wide(found), wide(expected)
    if not (np.isfinite(have).all() and np.isfinite(want).all()):
        return False
    epsilon = epsilon_of(expected.dtype)
    bound = min(_FEW_ULPS * epsilon, float(np.sqrt(epsilon))) * float(np.max(np.abs(want), initial=0.0))
    return bool(np.max(np.abs(have - want), initial=0.0) <= bound)


def only_rounding(proof: Proof | None, question: Difference) -> str:
    """What is to be said of values that deviate in a graph, although they are proved equal."""
    if not _is_proved(proof, question) or question.mode not in _GRAPHS:
        return ""
    return "the results are proved equal in real arithmetic, so only rounding, an op's kernel or the device is at fault"
