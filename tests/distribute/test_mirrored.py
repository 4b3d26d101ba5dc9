"""Trainings under ``MirroredStrategy``, each fault beside the same done right, on two devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

pytestmark = [pytest.mark.usefixtures("forked_workers"), pytest.mark.long]

FreshProcess = Callable[..., CompletedProcess[str]]
CUSTOM, BOTH = ("custom",), ("custom", "fit")

#: What is planted, the loops, and what the findings must name: the kind, and a text of where and message.
FAULTS = {
    "scalar_loss": (BOTH, [("value", "loss squares", "counts in full, not in proportion to its share")]),
    "added_sum": (BOTH, [("value", "layer activity, add_loss", "divides layer losses by the number of replicas (2)")]),
    "clipped": (BOTH, [("value", "optimizer SGD, clipnorm=0.1", "clips the gradients of each replica before")]),
    "normalised": (
        BOTH,
        [
            ("value", "layer norm", "with synchronized=True the training matches the single-device run"),
            ("sync", "sequential/norm/moving_mean", "a replica's copy of the variable differs"),
        ],
    ),
    "named_metrics_normalised": (
        BOTH,
        [("value", "layer norm", "with synchronized=True the training matches the single-device run")],
    ),
    "applied_per_shard": (CUSTOM, [("update-count", "step 0", "counted 2 updates in 1 step:")]),
    "misses_an_update": (CUSTOM, [("sync", "step 2", "the replica missed an update")]),
    "reads_the_same": (CUSTOM, [("input", "step 0", "all 2 replicas were given the same 4 rows")]),
    "reads_a_batch_each": (CUSTOM, [("input", "step 0", "the batch grows with the number of devices")]),
}
CLEAN = {
    "clean": BOTH,
    "named_metrics": BOTH,
    "adam": CUSTOM,
    "loss_per_row": CUSTOM,
    "added_mean": CUSTOM,
    "hardly_clipped": CUSTOM,
    "normalised_together": BOTH,
    "sums_over_images": CUSTOM,
    "applied_once": CUSTOM,
    "reads_its_part": CUSTOM,
}


def judge_all(spec: str) -> None:
    """Judge every training in this process, and print what was found as one line of JSON."""
    import sample_trainings

    import harness
    from harness.distribute.one_process import examine
    from harness.distribute.single_device import Experiment
    from harness.distribute.training import Data
    from harness.runner.messages import plain

    devices = harness.configure(spec)
    x, y = sample_trainings.data()
    results: dict[str, Any] = {}
    for name, loops in {**{name: loops for name, (loops, _) in FAULTS.items()}, **CLEAN, "dropped_out": CUSTOM}.items():
        # Two whole batches, and for the trainings that read data by TensorFlow one of six rows.
        steps = 2 if name.startswith("reads") else 3
        data = sample_trainings.images() if name == "sums_over_images" else Data(x, y, 8)
        asked = Experiment(getattr(sample_trainings, name), name, data, steps, loops)
        found = examine("mirrored", devices, asked)
        results[name] = {"text": str(found), "verdict": found.verdict.value, "reason": found.reason}
        results[name]["findings"] = plain(found.findings)
        results[name]["exercised"] = plain(found.exercised)
        results[name]["collectives"] = plain(found.collectives)
        results[name]["shares"] = found.measured
    print(json.dumps(results))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory, spec_of: Callable[[int], str]) -> dict[str, Any]:
    import os
    import subprocess
    import sys
    from pathlib import Path

    here = str(Path(__file__).parent)
    call = f"import test_mirrored; test_mirrored.judge_all({spec_of(2)!r})"
    code = f"import sys; sys.path[:] = {[here, *sys.path]!r}; {call}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path_factory.mktemp("mirrored"),
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_cause_is_named(judged: dict[str, Any], name: str) -> None:
    loops, expected = FAULTS[name]
    assert judged[name]["verdict"] == "FAIL"
    for kind, where, message in expected:
        named = [
            finding
            for finding in judged[name]["findings"]
            if finding["kind"] == kind and where in finding["where"] and message in finding["message"]
        ]
        assert len(named) == len(loops), judged[name]["text"]


@pytest.mark.parametrize("name", CLEAN)
def test_the_same_done_right_is_equal_to_one_device(judged: dict[str, Any], name: str) -> None:
    found = judged[name]
    assert found["verdict"] == "PASS", found["text"]
    assert found["findings"] == []
    assert found["exercised"]["programs"] == len(CLEAN[name])
    assert found["exercised"]["gradients"] > 0
    assert found["exercised"]["gradient_ops"] > 0
    devices = found["exercised"]["devices"]
    # Beside GPUs, Keras's loop counts on the host.
    assert len([device for device in devices if "GPU" in device] or devices) == 2


def test_bounds_are_no_wider_than_they_have_to_be(judged: dict[str, Any]) -> None:
    """What was planted is far outside of them, and what is clean is inside, and not only by a hair."""
    for name in CLEAN:
        assert all(share < 0.5 for share in judged[name]["shares"].values()), (name, judged[name]["shares"])
    for name in ("scalar_loss", "added_sum", "clipped", "normalised"):
        assert max(judged[name]["shares"].values()) > 1000, (name, judged[name]["shares"])


def test_the_collectives_of_a_step_are_told_per_device_with_bytes(judged: dict[str, Any]) -> None:
    counts = judged["clean"]["collectives"]
    # 5 * 7 + 7 weights of the first layer and 7 * 3 + 3 of the last, in float32, packed into one.
    assert {(count["loop"], count["type"], count["count"], count["size_bytes"]) for count in counts} == {
        (loop, "CollectiveReduceV2", 1, 66 * 4) for loop in ("custom loop", "fit")
    }
    assert len({count["device"] for count in counts}) == 2


def test_random_numbers_of_each_replica_prove_nothing(judged: dict[str, Any]) -> None:
    assert judged["dropped_out"]["verdict"] == "UNKNOWN"
    assert "layer drop draws random numbers" in judged["dropped_out"]["reason"]
