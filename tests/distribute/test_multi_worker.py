"""Trainings under ``MultiWorkerMirroredStrategy`` in two real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import forks
import pytest
import sample_trainings as samples

import harness
from harness.distribute import Equivalence, equivalent

pytestmark = [pytest.mark.usefixtures("forked_workers"), pytest.mark.long]


def train(build: Any, folder: Path, steps: int = 3, **options: Any) -> Equivalence:
    options = {"loops": ("custom",), "limit_s": 300.0, **options}
    return equivalent("multi_worker", build, samples.data(), steps, logs=folder, **options)


def named(found: Equivalence, kind: str, text: str) -> list[harness.Finding]:
    return [each for each in found.findings if each.kind == kind and text in f"{each.where}: {each.message}"]


def test_two_workers_are_equal_to_one_device_and_fit_is_refused_by_keras(tmp_path: Path) -> None:
    found = train(samples.clean, tmp_path, loops=("custom", "fit"))
    assert [finding.kind for finding in found.findings] == ["error"], found
    assert named(
        found, "error", "fit under MultiWorkerMirroredStrategy: Keras's fit does not work with several processes"
    )
    assert found.exercised.gradients == 3 * 66
    assert len(found.exercised.devices) == 2
    # 66 weights in float32, from each worker.
    assert {(count.count, count.size_bytes) for count in found.collectives} == {(1, 264)}
    assert len({count.device for count in found.collectives}) == 2


def test_a_worker_with_another_learning_rate_is_named(tmp_path: Path) -> None:
    found = train(samples.other_learning_rate, tmp_path / "planted")
    assert named(found, "value", "the learning rate of worker 1 is not that")
    assert named(found, "sync", "the values of workers 0 and 1 differ")


def test_workers_that_read_the_same_rows_are_named(tmp_path: Path) -> None:
    found = train(samples.reads_the_same, tmp_path / "planted", steps=2)
    assert named(found, "input", "all 2 replicas were given the same 4 rows")


@pytest.mark.parametrize(
    ("build", "said", "limit_s"),
    [(samples.hangs, "timed out after 20 s", 20.0), (samples.dies, "ended: killed by SIGKILL", 300.0)],
)
def test_a_hang_and_a_death_are_results_with_stacks_and_nothing_is_left(
    build: Any, said: str, limit_s: float, tmp_path: Path
) -> None:
    found = train(build, tmp_path, limit_s=limit_s)
    assert found.verdict is harness.Verdict.FAIL
    assert {finding.where for finding in named(found, "error", "")} == {"worker 0 of 2", "worker 1 of 2"}
    assert any(said in finding.message for finding in found.findings), found
    if build is samples.hangs:
        asleep = named(found, "error", "worker 1 of 2")[0]
        assert "in hangs" in asleep.message
        assert "Python stacks" in asleep.found
    assert forks.children(recursive=True) == []
