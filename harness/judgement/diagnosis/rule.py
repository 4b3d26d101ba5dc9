"""What a rule is: a cause that is known, and how it is claimed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from harness.judgement.diagnosis.question import Cause, Question


class Rule(NamedTuple):
    """One cause of differing results.

    A code never changes its meaning: 1xx are rows and shards, 2xx updates of variables, 3xx gradients, 4xx what is
    computed, 5xx TensorFlow and the devices, 6xx random numbers; C900 is a difference that no other rule explains.
    """

    code: str
    name: str
    #: What is ruled out where the rule explains nothing. Rules that follow each other may share it.
    excluded: str
    #: Yields causes, each after its numbers were computed and are those that were found.
    claims: Callable[[Question], Iterator[Cause]]
    #: What it looks at: results alone, which any loop of training has too; the program's ops; or the platform, whose
    #: fault it is, and not the program's.
    by: Literal["results", "ops", "platform"] = "ops"

    @property
    def meaning(self) -> str:
        """What holds where it is the cause: what the file of the rule says first."""
        return (sys.modules[self.claims.__module__].__doc__ or "").partition("\n\n")[0].strip()
