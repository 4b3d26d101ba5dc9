"""Runs a check on generated examples outside a test: for callers that want neither pytest nor Hypothesis themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, seed as seeded, settings
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from harness.errors import UsageError

Example = TypeVar("Example")

#: From the 11th example on, Hypothesis makes most of the next ones by repeating parts of the last one, and from runs
#: of 10 on it begins with small ones. That finds faults in what is small or has equal parts; for coverage fresh
#: examples are worth more, so a run is made of short runs.
_FRESH = 8


@dataclass(frozen=True)
class Failure(Generic[Example]):
    """The simplest example found that fails, and the error that the check raised for it."""

    example: Example
    error: AssertionError


@dataclass(frozen=True)
class Exploration(Generic[Example]):
    """What :func:`explore` did: how many examples were checked before shrinking, and the failure, or ``None``."""

    examples: int
    failure: Failure[Example] | None

    @property
    def passed(self) -> bool:
        """Whether examples were checked and none failed. Nothing checked is no pass."""
        return self.failure is None and self.examples > 0


def explore(
    check: Callable[[Example], object],
    strategy: SearchStrategy[Example],
    *,
    examples: int,
    seed: int = 0,
    shrink: bool = True,
) -> Exploration[Example]:
    """Check that many examples until one fails.

    They are the same ones for the same ``seed`` in the same program: Hypothesis also draws numbers that it finds in
    the sources of the modules that are loaded.

    ``check`` fails by raising an ``AssertionError`` (:class:`~harness.errors.VerificationError` is one). The failing
    example is then made as simple as can be, unless ``shrink`` is false. Any other error passes through as it is.
    A strategy that has fewer examples, or none, ends the exploration early: ``.examples`` counts what was checked.

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
    """That many examples, chosen as by :func:`explore`.

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

    # Each run of Hypothesis begins with the simplest example: once is enough.
    extra = 1 if before else 0

    @seeded((seed << 32) + before)
    @settings(
        max_examples=examples + extra,
        database=None,
        deadline=None,
        derandomize=False,  # Hypothesis sets it where CI=true, and would then not go by the seed
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
        # Hypothesis runs the simplest failing example last. Flaky: it did not fail again, and it did once.
        if not failures:
            raise
        return done, failures[-1]
    except Unsatisfiable:
        # The strategy has no example: the count says so.
        return done, None
    return done, None
