"""An op whose result the reference does not have, though it has all that the op reads: where the two programs part."""

from __future__ import annotations

from harness.judgement.diagnosis.divergence import first_difference
from harness.judgement.diagnosis.rule import Rule

RULE = Rule("C900", "first-difference", "an op that differs from the reference's", first_difference)
