"""Runs a check on generated examples outside a test, for callers without pytest or Hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, seed as seeded, settings
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from harness.errors import UsageError

Example = TypeVar("Example")

#: From the 11th example of a run on, Hypothesis mostly repeats parts of the last one, and longer runs begin with small
#: examples. Fresh examples cover more, so an exploration is a sequence of short runs.
_FRESH = 8


@dataclass(frozen=True)
class Failure(Generic[Example]):
    """The simplest failing example found, and the error that the check raised."""

    example: Example
    error: AssertionError


@dataclass(frozen=True)
class Exploration(Generic[Example]):
    """How many examples were checked before shrinking, and the failure, or ``None``."""

    examples: int
    failure: Failure[Example] | None

    @property
    def passed(self) -> bool:
        """Whether examples were checked and none failed."""
        return self.failure is None and self.examples > 0


def explore(
    check: Callable[[Example], object],
    strategy: SearchStrategy[Example],
    *,
    examples: int,
    seed: int = 0,
    shrink: bool = True,
) -> Exploration[Example]:
    """Check this many examples, or until one fails.

    The same ``seed`` gives the same examples in the same program: Hypothesis also draws constants from the sources of
    the loaded modules.

    ``check`` fails by raising an ``AssertionError`` (:class:`~harness.errors.VerificationError` is one). The failing
    example is then simplified, unless ``shrink`` is false. Other errors pass through. A strategy with fewer examples
    ends the exploration early; ``.examples`` counts those that were checked. Raise UsageError if ``examples`` is not
    positive.
    """
    if examples < 1:
        raise UsageError(f"examples={examples}; accepted: 1 or more")
    checked = 0
    failures: list[Failure[Example]] = []

    def short_run(count: int) -> None:
        # Each run of Hypothesis begins with the simplest example, which only the first run needs.
        repeated = checked > 0

        @seeded((seed << 32) + checked)
        @settings(
            max_examples=count + repeated,
            database=None,
            deadline=None,
            derandomize=False,  # set by Hypothesis where CI=true, which ignores the seed
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            report_multiple_bugs=False,
            suppress_health_check=tuple(HealthCheck),
            verbosity=Verbosity.quiet,
            print_blob=False,
        )
        @given(strategy)
        def run(example: Example) -> None:
            nonlocal checked, repeated
            if repeated:
                repeated = False
                return
            checked += 0 if failures else 1
            try:
                check(example)
            except AssertionError as error:
                failures.append(Failure(example, error))
                raise

        run()

    while checked < examples and not failures:
        before = checked
        try:
            short_run(min(_FRESH, examples - checked))
        except (AssertionError, Flaky):
            if not failures:
                raise
        except Unsatisfiable:
            break
        if checked == before:
            break
    # Hypothesis runs the simplest failing example last. With Flaky, it failed once and then did not.
    return Exploration(checked, failures[-1] if failures else None)


def sample(strategy: SearchStrategy[Example], count: int, *, seed: int = 0) -> list[Example]:
    """Return this many examples, as :func:`explore` draws them. Raise UsageError if ``count`` is not positive."""
    drawn: list[Example] = []
    explore(drawn.append, strategy, examples=count, seed=seed)
    return drawn
