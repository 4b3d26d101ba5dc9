"""Compares two versions by runs in turn: A B B A, each run in a process of its own.

The runs show the variation between runs themselves, so no calibration is needed. Each run of a version is one value,
the logarithm of its speedup; the two sets are compared by Student's t test (``scipy.stats.ttest_ind`` with one variance
for both, because it is the same machine, minutes apart). A B B A gives both versions the same mean time, so a steady
drift of the machine is no difference between them. Every run repeats the measurement, so no second measurement is
needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from harness.errors import UsageError
from harness.records import Verdict
from harness.speed.baseline import SavedRun
from harness.speed.change import Change, Rules, judged_change
from harness.speed.comparable import differences
from harness.speed.figures import FIGURES, Figure, log_speedup
from harness.speed.gate import Judged, Judgement, conclude

Version = Literal["A", "B"]
#: Two blocks A B B A: four runs each, six degrees of freedom.
DEFAULT_ROUNDS = 2


def order_of(rounds: int) -> tuple[Version, ...]:
    """Order the versions: ``rounds`` times A B B A.

    Raises:
        UsageError: fewer than one round.
    """
    if rounds < 1:
        raise UsageError(f"--rounds {rounds}: accepted: at least 1; each round is A B B A")
    return ("A", "B", "B", "A") * rounds


def judge_rounds(a_runs: Sequence[SavedRun], b_runs: Sequence[SavedRun], rules: Rules) -> Judgement:
    """Judge the runs of B against those of A, at least two of each. Only benchmarks that gate in all runs count."""
    runs = (*a_runs, *b_runs)
    judgement = Judgement(
        Verdict.UNKNOWN,
        "",
        rules,
        f"A ({len(a_runs)} runs) in turn with B ({len(b_runs)} runs)",
        "the variation between runs is from these runs",
    )
    for run in runs:
        if differ := differences(runs[0].fingerprint, run.fingerprint):
            fields = "; ".join(map(str, differ))
            reason = f"not comparable: the machine or software differs between the runs; {fields}"
            return replace(judgement, reason=reason, differences=differ)
    in_all = set.intersection(*(set(run.records) for run in runs))
    in_a, in_b = (set().union(*(run.records for run in part)) for part in (a_runs, b_runs))
    ungated = {
        name: f"does not gate: {run.records[name].label}"
        for run in runs
        for name in in_all
        if not run.records[name].gates
    }
    judged = [
        judged_rounds(name, _values(a_runs, name, figure), _values(b_runs, name, figure), rules, figure)
        for name in sorted(in_all - ungated.keys())
        for figure in FIGURES
    ]
    judgement = replace(
        judgement,
        missing=tuple(sorted(in_a - in_all)),
        new=tuple(sorted(in_b - in_a)),
        ungated=tuple(sorted(ungated.items())),
    )
    return conclude(judgement, judged)


def judged_rounds(
    name: str, a_values: Sequence[float], b_values: Sequence[float], rules: Rules, figure: Figure = "fastest"
) -> Judged:
    """Judge one figure of a benchmark from its logarithms, one value per run."""
    import numpy as np
    from scipy.stats import ttest_ind

    if np.ptp(a_values) == 0.0 and np.ptp(b_values) == 0.0:
        raise UsageError(f"{name}: all runs of a version have exactly the same speedup, which no measurement gives")
    found = ttest_ind(b_values, a_values)
    difference = float(np.mean(b_values) - np.mean(a_values))
    error = _standard_error(found.confidence_interval(0.95), float(found.df))
    change = judged_change(difference, error, float(found.df), rules)
    if change.verdict == "cannot tell":
        change = replace(change, more=_rounds(change, rules))
    base, new = (math.exp(float(np.mean(values))) for values in (a_values, b_values))
    return Judged(name, base, new, change, figure=figure, rounds=True)


def _standard_error(interval: tuple[float, float], freedom: float) -> float:
    """Derive the standard error from SciPy's 95 % interval."""
    from scipy.stats import t

    return (float(interval[1]) - float(interval[0])) / 2.0 / float(t.ppf(0.975, freedom))


def _rounds(change: Change, rules: Rules) -> str:
    """Say how many rounds are needed: the error falls with the square root of their number."""
    from scipy.stats import t

    half = change.error * float(t.ppf(rules.confidence, change.freedom))
    return f"about {math.ceil((half / -rules.log_loss) ** 2 * 10) / 10:g} times as many rounds are needed"


def _values(runs: Sequence[SavedRun], name: str, figure: Figure) -> list[float]:
    return [log_speedup(run.records[name].single_ns, run.records[name].parallel_ns, figure).value for run in runs]
