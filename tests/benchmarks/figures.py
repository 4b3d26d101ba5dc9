"""A pytest plug-in of the benchmarks: the fixture ``compare``, and a table of the figures at the end.

A figure is the median over interleaved pairs. No figure fails a test because it misses its target: a machine that is
busy with something else would fail it too. It fails where it is absurd, or where nothing was measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pytest
from pairs import Pairing, quartiles

_PROPERTY = "figure"
#: Fewer pairs than this make no median.
_FEWEST_PAIRS = 5

Unit = Literal["times", "ms more"]


@dataclass(frozen=True)
class Figure:
    """One measured figure: the median and quartiles over ``pairs`` pairs, in ``unit``, and what it is meant to be."""

    what: str
    unit: Unit
    target: float
    median: float
    lower_quartile: float
    upper_quartile: float
    pairs: int

    def line(self) -> str:
        """The figure in one line of the table."""
        verdict = "met" if self.median <= self.target else "missed"
        return (
            f"{self.what:<60} {self.median:>8.3f} {self.lower_quartile:>8.3f} {self.upper_quartile:>8.3f} "
            f"{self.unit:<8} {self.target:>7g} {verdict:<7} {self.pairs:>5}"
        )


@pytest.fixture
def compare(benchmark: Any, record_property: Callable[[str, object], None]) -> Callable[..., Figure]:
    """Measures ``left`` against ``right`` in pairs, and records the figure in ``benchmark.extra_info``."""

    def measure(
        what: str,
        left: Callable[[int], object],
        right: Callable[[int], object],
        *,
        target: float,
        absurd: float,
        pairs: int,
        warmup: int = 3,
        unit: Unit = "times",
        clock: Callable[[], float] = time.perf_counter,
    ) -> Figure:
        for _ in range(warmup):
            left(0)
            right(0)
        pairing = Pairing(left, right, clock=clock)
        benchmark.pedantic(pairing, rounds=pairs, iterations=1)
        measured = pairing.pairs
        # Under xdist, and with --benchmark-disable, pytest-benchmark calls what it is given once, and says little.
        assert len(measured) >= _FEWEST_PAIRS, f"{len(measured)} pairs are no measurement: is benchmarking disabled?"
        lower, median, upper = quartiles(measured.ratios if unit == "times" else measured.differences_ms)
        figure = Figure(what, unit, target, median, lower, upper, len(measured))
        benchmark.extra_info.update(asdict(figure))
        record_property(_PROPERTY, figure.line())
        assert median < absurd, f"{what}: {median:.3f} {unit}, far from the target of {target}: {figure}"
        return figure

    return measure


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the figures, each beside its target."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    properties = [entry for report in reports if report.when == "call" for entry in report.user_properties]
    lines = [str(text) for name, text in properties if name == _PROPERTY]
    if not lines:
        return
    terminalreporter.section("figures", sep="=")
    terminalreporter.line("Medians over interleaved pairs; from and to are the quartiles.")
    terminalreporter.line(f"{'':<60} {'median':>8} {'from':>8} {'to':>8} {'':<8} {'target':>7} {'':<7} {'pairs':>5}")
    for line in lines:
        terminalreporter.line(line)
