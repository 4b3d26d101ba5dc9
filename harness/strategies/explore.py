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
    ends the exploration early; ``.examples`` counts those that were checked.

    Raises:
        UsageError: ``examples`` is not positive.
    """
    if examples < 1:
        raise UsageError(f"examples={examples}; accepted: 1 or more")
    checked = 0
    while checked < examples:
        done, failure = _short_run(check, strategy, min(_FRESH, examples - checked), seed, checked, shrink)
        checked += done
        if failure is not None or not done:
            return Exploration(checked, failure)
    return Exploration(checked, None)


def sample(strategy: SearchStrategy[Example], count: int, *, seed: int = 0) -> list[Example]:
    """Return this many examples, as :func:`explore` draws them.

    Raises:
        UsageError: ``count`` is not positive.
    """
    drawn: list[Example] = []
    explore(drawn.append, strategy, examples=count, seed=seed)
    return drawn


def _short_run(
    check: Callable[[Example], object],
    strategy: SearchStrategy[Example],
    examples: int,
    seed: int,
    before: int,
    shrink: bool,
) -> tuple[int, Failure[Example] | None]:
    done = 0
    failures: list[Failure[Example]] = []

    # Each run of Hypothesis begins with the simplest example, which only the first run needs.
    extra = 1 if before else 0

    @seeded((seed << 32) + before)
    @settings(
        max_examples=examples + extra,
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
        nonlocal done, extra
        if extra and not done and not failures:
            extra = 0
            return
        done += 0 if failures else 1
        try:
            check(example)
        except AssertionError as error:
            failures.append(Failure(example, error))
            raise

    try:
        run()
    except (AssertionError, Flaky):
        # Hypothesis runs the simplest failing example last. Flaky: it failed once, and then did not.
        if not failures:
            raise
        return done, failures[-1]
    except Unsatisfiable:
        return done, None
    return done, None
