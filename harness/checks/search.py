"""Verifies generated examples, adding up what they exercised, until one fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from harness.checking.tally import Tally
from harness.records import Verdict

if TYPE_CHECKING:
    from harness.judgement.verification import Verification

Example = TypeVar("Example")

#: How long a failing example is shrunk, in seconds.
SHRINK_S = 30.0


class ExampleFailed(AssertionError):
    """A generated example did not pass."""

    def __init__(self, verification: Verification) -> None:
        self.verification = verification
        super().__init__(verification.reason)


class Search(Generic[Example]):
    """Verifies examples. ``verify`` judges one; ``empty`` says whether it runs on no rows, and so has no values."""

    def __init__(self, verify: Callable[[Example], Verification], empty: Callable[[Example], bool]) -> None:
        self.tally = Tally()
        self.proven = 0
        self.empty = 0
        self.examples = 0
        self._verify = verify
        self._is_empty = empty
        self._failed_at: float | None = None

    def run(self, strategy: Any, examples: int, seed: int) -> bool:
        """Verify that many examples of a Hypothesis strategy; shrink the first that fails. Return whether none did."""
        from harness.strategies.explore import explore

        exploration = explore(self._judge, strategy, examples=examples, seed=seed)
        self.examples = exploration.examples
        self.tally.measured["programs_generated"] = exploration.examples
        self.tally.measured["programs_proven"] = self.proven
        if exploration.failure is not None:
            self._add_failure(exploration.failure.example, exploration.failure.error)
            return False
        if not self.proven:
            self.tally.unproven(f"{self.examples} programs were generated, but none could be judged")
        return True

    def _judge(self, example: Example) -> None:
        if self._failed_at is not None and time.monotonic() - self._failed_at > SHRINK_S:
            return  # stop shrinking: the last failure stands
        verification = self._verify(example)
        if verification.verdict is Verdict.FAIL:
            self._failed_at = self._failed_at or time.monotonic()
            raise ExampleFailed(verification)
        if self._failed_at is None:
            self.tally.exercised += verification.exercised
            # A program on a batch of 0 rows has no values, and proves only that it runs.
            empty = self._is_empty(example)
            self.empty += empty
            self.proven += not empty and verification.passed and bool(verification.exercised.values)

    def summary(self, what: str) -> str:
        """Return the reason of a PASS: ``what``, and how many programs proved nothing."""
        text = what
        if self.empty:
            text += f"; {self.empty} more ran on batches of 0 rows, which have no values"
        if rest := self.examples - self.proven - self.empty:
            text += f"; {rest} more could not be judged (ill-conditioned: any value would be within tolerance)"
        return text

    def _add_failure(self, example: Example, error: AssertionError) -> None:
        if not isinstance(error, ExampleFailed):
            raise error
        for finding in error.verification.findings:
            found = f"{finding.found}\nin the program\n{example!r}"
            self.tally.found(replace(finding, where=f"generated program: {finding.where}", found=found))
