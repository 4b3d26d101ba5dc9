"""Joins a proof with a verification: what is proved for every input, and what was only tested."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.judgement.fields import in_fields
from harness.judgement.state import named_variables
from harness.lazy import tf
from harness.proof.claim import Proof, examine
from harness.proof.sentence import claim, why

if TYPE_CHECKING:
    from harness.judgement.examine import Examination
    from harness.judgement.verification import Comparison

#: After so long, what is not proved yet counts as tested.
_LIMIT_S = 60.0


def proof_of(examination: Examination) -> Proof | None:
    """Prove what was compared. ``None`` if neither program ran as a graph: the proof is about graphs.

    An error within the proof makes it no proof, and is recorded in it.
    """
    if not {"graph", "dynamic"} & examination.traces.keys() or examination.programs == 0:
        return None
    names = {}
    watched = {id(variable) for variable in examination.shared.variables}
    for variable, name in named_variables(examination.variables, examination.state):
        if id(variable) in watched and isinstance(variable, tf.Variable):
            names[id(variable.handle)] = name
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the runs have shown them
            return examine(
                examination.parallel,
                examination.reference,
                examination.inputs,
                variables=examination.variables,
                gradients=bool(examination.gradients),
                names=names,
                results=in_fields,
                scope=examination.devices[0].name,
                limit_s=_LIMIT_S,
            )
    # A boundary: whatever goes wrong in a proof, the programs were tested.
    except Exception as error:  # noqa: BLE001
        return Proof((), error=f"{type(error).__name__}: {error}".splitlines()[0][:200])


def with_proof(reason: str, proof: Proof | None) -> str:
    """The reason of a PASS with what was proved."""
    if proof is None or not any(each.proved for each in proof.results):
        return reason
    if proof.proved:
        return f"{claim(proof)}, and every op ran where it should"
    return f"{reason}. {claim(proof)}"


def refuted(proof: Proof | None, comparisons: Sequence[Comparison]) -> str:
    """Why a result differs for every input, where the proof shows it and the numbers confirm it."""
    wrong = {each.where for each in comparisons if each.largest_error > each.bound}
    found = (each for each in (proof.results if proof is not None else ()) if each.refuted and each.name in wrong)
    return next((f"{each.name}: {why(each)}" for each in found), "")


def only_rounding(proof: Proof | None) -> str:
    """What is to be said of values that deviate although they are proved equal."""
    if proof is None or not proof.proved:
        return ""
    return "The results are proved equal in real arithmetic, so only rounding, an op's kernel or the device is at fault"
