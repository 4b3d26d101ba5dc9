"""Only the rows of some shards differ, in whatever way."""

from __future__ import annotations

from collections.abc import Iterator

from harness.judgement.diagnosis.question import Cause, Question
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.rules.one_shard import claims as one_shard


def _claims(question: Question) -> Iterator[Cause]:
    return one_shard(question, anyhow=True)


RULE = Rule("C118", "shard-differs", "results that differ in some shards only", _claims)
