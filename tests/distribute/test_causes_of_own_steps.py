"""A step of one's own, or a metric, that goes wrong with several replicas: the cause is replayed on one device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.usefixtures("forked_workers"), pytest.mark.long]

CUSTOM, FIT = ("custom",), ("fit",)
#: The loop of each, and what its first sentence contains; ``None``: it passes.
TRAININGS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "regularized_in_each": (CUSTOM, "a regulariser, is counted 2 times, once for each replica, instead of once (own_s"),
    "regularized": (CUSTOM, None),
    "penalized_in_each": (CUSTOM, "a regulariser, is counted 2 times, once for each replica, instead of once (own_s"),
    "averaged_again": (CUSTOM, "weights change 1/2 times as much as on one device, although the gradients are the sam"),
    "added_up": (CUSTOM, None),
    "averaged_unseen": (
        CUSTOM,
        "changed 1/2 times as much as in the single-device run: a mean over the 2 replicas was",
    ),
    "centred_in_each": (CUSTOM, "the average over the 2 replicas is not the result of the batch: a row's result depen"),
    "centred": (CUSTOM, None),
    "lost_by_one": (CUSTOM, "the part of replica 1 is missing from the update"),
    # Nothing explains these: then nothing is named as the cause.
    "other_optimum": (CUSTOM, "loss, step 0: loss diverged from the single-device run at step 0"),
    "results_by_replica": (CUSTOM, "metric numbered, step 0: metric diverged from the single-device run at step 0"),
    "shares_added_up": (
        CUSTOM,
        "Keras adds up the replicas' states of a metric, which is right for sums and counts, but",
    ),
    "counts_added_up": (CUSTOM, None),
    "mean_of_each": (CUSTOM, "loss, step 1: loss diverged from the single-device run at step 1"),
    "mean_of_all": (CUSTOM, None),
    "mean_from_run_to_run": (CUSTOM, "or keeps something from run to run; make each variable that it keeps in build"),
    "one_doubled": (CUSTOM, "for sequential/dense/kernel alone, the replicas' gradients are added up although"),
    "classes": (CUSTOM, None),
    "classes in fit": (FIT, "Keras's fit reports the mean of the results that the replicas have for f1_score"),
    "two_results": (CUSTOM, None),
    "two_results in fit": (FIT, "Keras's fit reports the mean of the results that the replicas have for number"),
    "centred_by_a_layer in fit": (FIT, "a row's result depends on the other rows of its replica"),
    "sum_in_a_layer in fit": (FIT, "adds a sum over the rows of the batch to the loss, but Keras divides"),
    "counts_added_up in fit": (FIT, "Keras's fit reports the mean of the results that the replicas have for close"),
}


def judge_all(spec: str) -> None:
    """Judge every training in this process, and print what was found as one line of JSON."""
    import own_steps

    import harness
    from harness.distribute.one_process import examine
    from harness.distribute.single_device import Experiment
    from harness.distribute.training import Data
    from harness.faults.samples import sample

    devices = harness.configure(spec)
    data, found = Data(sample(24, 4), sample(24, 3, seed=1), 8), {}
    for name, (loops, _) in TRAININGS.items():
        build = getattr(own_steps, name.split()[0])
        result = examine("mirrored", devices, Experiment(build, name, data, 3, loops))
        found[name] = result.verdict.value, result.reason
    print(json.dumps(found))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory, spec_of: Callable[[int], str]) -> dict[str, Any]:
    here = str(Path(__file__).parent)
    call = f"import test_causes_of_own_steps; test_causes_of_own_steps.judge_all({spec_of(2)!r})"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {[here, *sys.path]!r}; {call}"],
        cwd=tmp_path_factory.mktemp("own_steps"),
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", TRAININGS)
def test_the_cause_is_the_one_that_gives_the_numbers(judged: dict[str, Any], name: str) -> None:
    verdict, reason = judged[name]
    said = TRAININGS[name][1]
    assert verdict == {None: "PASS", "mean_from_run_to_run": "UNKNOWN"}.get(said and name, "FAIL"), reason
    assert said is None or said in reason, reason
