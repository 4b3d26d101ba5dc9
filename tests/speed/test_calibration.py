from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_runs import FINGERPRINT, record, run

from harness.errors import InvalidCalibration, UsageError
from harness.speed.baseline import SavedRun
from harness.speed.calibration import (
    calibrate,
    exact_interval,
    load_calibration,
    save_calibration,
    variation_between,
    variation_of,
)
from harness.speed.change import UNCALIBRATED, Rules, Variation, change_between
from harness.speed.comparable import machine_key
from harness.speed.estimate import FIGURES, LogSpeedup, log_speedup

_RULES = Rules()
_WHEN = "2026-01-02T03:04:05+00:00"


def _runs(count: int = 12, sigma: float = 0.01, names: str = "abc", seed: int = 0) -> list[SavedRun]:
    draw = random.Random(seed)
    return [
        run({name: record(1.9 * draw.lognormvariate(0.0, sigma), seed=1000 * n + ord(name)) for name in names})
        for n in range(count)
    ]


def test_variation_between_runs_is_what_one_run_does_not_show() -> None:
    # Values 0, 0.02, 0.04: variance 4e-4; errors 0.01 each: 1e-4; what is left is sqrt(3e-4).
    logs = [LogSpeedup(value, 0.01, 60, 35) for value in (0.0, 0.02, 0.04)]
    assert variation_between(logs) == pytest.approx(math.sqrt(3e-4))
    assert variation_between([replace_error(each, 0.05) for each in logs]) == 0.0


def replace_error(each: LogSpeedup, error: float) -> LogSpeedup:
    return replace(each, error=error)


def test_the_exact_interval_is_clopper_and_pearson_s() -> None:
    # Of none in n the upper end is 1 - 0.025^(1/n).
    assert exact_interval(0, 300) == pytest.approx((0.0, 1 - 0.025 ** (1 / 300)))
    assert exact_interval(0, 300)[1] == pytest.approx(0.0122, abs=1e-4)
    # Newcombe (1998): 81 of 263, 0.2527 to 0.3676.
    assert exact_interval(81, 263) == pytest.approx((0.2527, 0.3676), abs=1e-4)


def test_a_calibration_finds_the_variation_that_is_there() -> None:
    found = calibrate(_runs(40, sigma=0.02), _RULES, made_at=_WHEN)
    assert found.pooled_sigma == pytest.approx(0.02, rel=0.2)
    assert all(
        each.freedom == 39 and each.speedup == pytest.approx(1.9, rel=0.02) for each in found.benchmarks.values()
    )
    assert found.comparisons == 3 * 40 * 39 // 2
    assert found.key == machine_key(FINGERPRINT)
    assert found.variation_of("a") == Variation(found.benchmarks["a"].sigma, 39, "calibrated 2026-01-02")
    assert found.variation_of("other").freedom == 117
    assert variation_of(found)("a", "typical") == found.variation_of("a", "typical")
    assert variation_of(None)("a", "fastest") is UNCALIBRATED


def test_a_steady_machine_gives_no_alarms_and_a_jumping_one_is_told_of() -> None:
    steady = calibrate(_runs(12, sigma=0.005), _RULES, made_at=_WHEN)
    assert steady.false_alarms == 0
    assert 0.005 < steady.smallest_loss < 0.05
    assert steady.line == (
        "on this machine: 0 false alarms in 198 comparisons at a threshold of 5.0% (the rate is at most 1.8%); "
        f"a loss of {steady.smallest_loss:.1%} is found with a probability of 90%; calibrated 2026-01-02 from 12 runs"
    )
    # One run in which everything was slow: the others do not show that this can be, so that it alarms.
    jumping = _runs(12, sigma=0.002)
    jumping[-1] = run({name: record(1.5, seed=ord(name)) for name in "abc"})
    found = calibrate(jumping, _RULES, made_at=_WHEN)
    assert found.false_alarms == 33
    assert found.false_alarm_most > 33 / 198


def test_the_smallest_loss_is_what_shifted_samples_show() -> None:
    runs = _runs(12, sigma=0.008)
    found = calibrate(runs, _RULES, made_at=_WHEN)

    def power(loss: float) -> float:
        """The share of comparisons that establish a loss, where the later run's parallel side is slowed down."""
        seen = []
        for name in "abc":
            for i, j in itertools.combinations(range(len(runs)), 2):
                found = []
                for figure in FIGURES:
                    logs = [
                        log_speedup(each.records[name].single_ns, each.records[name].parallel_ns, figure)
                        for each in runs
                    ]
                    slowed = replace(logs[j], value=logs[j].value + math.log1p(-loss))
                    sigma = variation_between([each for n, each in enumerate(logs) if n not in (i, j)])
                    change = change_between(logs[i], slowed, Variation(sigma, len(runs) - 3, ""), _RULES)
                    found.append(change.verdict == "worse")
                seen.append(any(found))
        return sum(seen) / len(seen)

    assert power(found.smallest_loss * 1.001) >= 0.9
    assert power(found.smallest_loss * 0.97) < 0.9


def test_what_cannot_calibrate_is_refused() -> None:
    with pytest.raises(UsageError, match="3 runs cannot make a calibration; accepted: 4 or more"):
        calibrate(_runs(3), _RULES, made_at=_WHEN)
    runs = _runs(4)
    runs[2] = replace(runs[2], fingerprint=replace(FINGERPRINT, spec="cpu:4"))
    with pytest.raises(UsageError, match=r"machine or software differs from the first run: spec: 'cpu:2' in"):
        calibrate(runs, _RULES, made_at=_WHEN)
    with pytest.raises(UsageError, match="machine or software differs"):
        calibrate([replace(each, fingerprint=None) for each in _runs(4)], _RULES, made_at=_WHEN)
    ungated = [run({"a": record(gates=False)}) for _ in range(4)]
    with pytest.raises(UsageError, match="no benchmark was measured in every run on devices"):
        calibrate(ungated, _RULES, made_at=_WHEN)


def test_a_calibration_is_kept_by_the_key_of_its_machine(tmp_path: Path) -> None:
    made = calibrate(_runs(4), _RULES, made_at=_WHEN)
    path = save_calibration(made, tmp_path)
    assert path == tmp_path / machine_key(FINGERPRINT) / "calibration.json"
    assert load_calibration(tmp_path, FINGERPRINT) == made
    assert [file.name for file in path.parent.iterdir()] == ["calibration.json"]
    assert load_calibration(tmp_path, replace(FINGERPRINT, tf32=False)) is None
    assert load_calibration(tmp_path, None) is None


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("schema_version", 2, "has schema_version 2, newer than 1: upgrade the harness"),
        ("schema_version", None, "has no schema_version"),
        ("pooled_sigma", "wide", "pooled_sigma: "),
        ("key", "another", r"was made on another machine \(another\)"),
    ],
)
def test_a_calibration_that_cannot_be_used_is_refused(tmp_path: Path, key: str, value: object, why: str) -> None:
    path = save_calibration(calibrate(_runs(4), _RULES, made_at=_WHEN), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}), encoding="utf-8")
    with pytest.raises(InvalidCalibration, match=why):
        load_calibration(tmp_path, FINGERPRINT)


def test_a_calibration_that_is_no_json_or_has_no_folder_is_refused(tmp_path: Path) -> None:
    made = calibrate(_runs(4), _RULES, made_at=_WHEN)
    save_calibration(made, tmp_path).write_text("{", encoding="utf-8")
    with pytest.raises(InvalidCalibration, match="is not JSON"):
        load_calibration(tmp_path, FINGERPRINT)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidCalibration, match="cannot be written"):
        save_calibration(made, tmp_path / "file")
