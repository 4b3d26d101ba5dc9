"""The rules on how a training ran, on records: each finds its fault and passes the clean twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.devices.device import Device, Devices
from harness.distribute.causes import find_causes
from harness.distribute.compare import compare, is_rounded_otherwise
from harness.distribute.equivalence import CollectiveCount, conclude
from harness.distribute.facts import Facts
from harness.distribute.history import History
from harness.distribute.replay import Case
from harness.distribute.rules import judge_collectives, judge_collectives_of_workers, judge_variable_devices
from harness.distribute.session import is_collective_clash
from harness.distribute.training import Data
from harness.records import Exercised, Finding, Verdict

NAMES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(3))
DEVICES = Devices([Device(name, "logical-cpu", "/physical_device:CPU:0") for name in NAMES], spec="cpu:3")


def given(device: str, count: int = 2, size_bytes: int | None = 80) -> CollectiveCount:
    return CollectiveCount("custom", "CollectiveReduceV2", device, count, size_bytes)


def test_devices_that_take_the_same_part_in_the_collectives_give_no_finding() -> None:
    assert judge_collectives([given(name) for name in NAMES], "custom", DEVICES, needed=True) == []


@pytest.mark.parametrize(
    ("counts", "device", "found"),
    [
        ([given(NAMES[0]), given(NAMES[1])], NAMES[2], "none"),
        (
            [given(NAMES[0]), given(NAMES[1], count=1, size_bytes=40), given(NAMES[2])],
            NAMES[1],
            "1 collective (40 bytes in all)",
        ),
        ([given(NAMES[0]), given(NAMES[1]), given(NAMES[2], size_bytes=4)], NAMES[2], "2 collectives (4 bytes in all)"),
    ],
)
def test_a_device_that_takes_another_part_is_named(counts: list[CollectiveCount], device: str, found: str) -> None:
    (finding,) = judge_collectives(counts, "custom", DEVICES, needed=True)
    assert (finding.kind, finding.device, finding.found) == ("sync", device, found)


def test_replicas_that_exchange_nothing_are_found_where_the_strategy_must() -> None:
    (finding,) = judge_collectives([], "custom", DEVICES, needed=True)
    assert finding.message == "replicas exchange nothing: each trains on its own"
    assert judge_collectives([], "custom", DEVICES, needed=False) == []
    assert judge_collectives([], "custom", DEVICES[:1], needed=True) == []


def test_workers_that_give_other_bytes_to_a_collective_are_found() -> None:
    clean = [given(f"/job:worker/replica:0/task:{index}/device:CPU:0") for index in range(2)]
    assert judge_collectives_of_workers(clean, 2) == []
    for planted in ([clean[0]], [clean[0], given("/job:worker/replica:0/task:1/device:CPU:0", size_bytes=8)]):
        (finding,) = judge_collectives_of_workers(planted, 2)
        assert finding.kind == "sync"


def history(devices: dict[str, tuple[str, ...]]) -> History:
    return History("custom loop", 3, NAMES, {}, (), (), variable_devices=devices)


def test_a_variable_that_is_not_where_the_strategy_keeps_its_own_is_found() -> None:
    assert list(judge_variable_devices(history({"kernel": NAMES, "momentum": NAMES}), NAMES)) == []
    planted = history({"kernel": NAMES, "momentum": NAMES[:1], "velocity": NAMES[:1], "bias": NAMES[::-1]})
    found = list(judge_variable_devices(planted, NAMES))
    assert [finding.where for finding in found] == ["momentum and 1 more", "bias"]
    assert {finding.kind for finding in found} == {"variable-placement"}


def test_an_error_of_a_collective_is_explained_only_where_two_strategies_are_mixed_up() -> None:
    clash = "Collective ops is aborted by: Shape mismatch in the collective instance 100. Op at device CPU:1 expected"
    assert is_collective_clash(clash)
    for other in (
        "CollectiveReduceV2: NCCL: Unable to load libnccl.so.2",
        "Collective ops is aborted by: worker 1 died",
    ):
        assert not is_collective_clash(other)


FINDING = Finding("sync", "", None, "", "", "")
WARNING = Finding("update-count", "", None, "", "", "", Verdict.WARN)


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"findings": [WARNING]}, Verdict.WARN),
        ({"findings": [WARNING, FINDING], "undecided": ["drawn"]}, Verdict.FAIL),
        ({"findings": [WARNING], "undecided": ["drawn"]}, Verdict.UNKNOWN),
        ({"exercised": Exercised(values=3)}, Verdict.UNKNOWN),
        ({"exercised": Exercised(values=3), "traced": False}, Verdict.PASS),
        ({"exercised": Exercised(), "traced": False}, Verdict.UNKNOWN),
    ],
)
def test_a_verdict_is_never_better_than_what_it_rests_on(told: dict[str, Any], verdict: Verdict) -> None:
    everything: dict[str, Any] = {"findings": [], "undecided": [], "exercised": Exercised(values=3, ops=2), **told}
    found, reason = conclude(**everything, passed="match the single-device run")
    assert found is verdict
    assert ("is not proven" in reason) is (verdict is Verdict.PASS and told.get("traced") is False)


def test_the_reason_of_a_failure_is_its_first_finding_and_what_the_others_are() -> None:
    cause = Finding("value", "layer norm", None, "", "", "it uses the statistics", mode="fit")
    copy = Finding("sync", "moving_mean", None, "", "", "a copy differs", mode="fit")
    found = conclude([cause, copy], (), Exercised(), "match the single-device run")
    assert found == (
        Verdict.FAIL,
        "layer norm: it uses the statistics. 1 more finding: sync",
    )


def _case(loss: float = 1.0, gradients: float = 1.0, update: float = 1.0, metric: float = 1.0) -> Case:
    """Two replicas whose first step has so many times the loss, the gradients and the update of one device."""
    gradient, weight = np.array([0.5, -0.25, 0.125]), np.array([1.0, 2.0, -1.0])

    def run(loss: float, gradients: float, update: float, metric: float = 1.0) -> History:
        values: dict[str, dict[str, Any]] = {
            "loss": {"loss": np.array([[loss]])},
            "metric": {"m": np.array([[metric]])},
            "gradient": {"w": gradients * gradient[None]},
            "weight": {"w": (weight - update * 0.1 * gradient)[None]},
            "slot": {},
        }
        return History("custom loop", 2, NAMES[:2], values, (1,), (0.1,))

    found, single = run(loss, gradients, update, metric), run(1.0, 1.0, 1.0)
    facts = Facts("mse", False, "SGD", "", (), (), (), "float32")
    data = Data(np.zeros((4, 1)), np.zeros((4, 1)), 4)
    return Case(found, single, compare(found, single, [single], 1e-7), facts, data)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (_case(2.0, 2.0, 2.0), "the gradients and the loss are 2 times those of one device"),
        (_case(1.0, 2.0, 2.0), "the gradients are 2 times those of one device"),
        (_case(0.5, 0.5, 0.5), "the gradients and the loss are 1/2 times those of one device"),
        (_case(update=2.0), "the weights change 2 times as much as on one device"),
        (
            _case(update=0.5),
            "the weights change 1/2 times as much as on one device, although the gradients are the same; each",
        ),
        (_case(1.9, 1.9, 1.9), None),
        (_case(update=1.9), None),
        (_case(update=0.0), None),
        (_case(metric=0.5), None),
        (_case(), None),
    ],
)
def test_gradients_and_updates_that_are_a_multiple_are_named_and_others_are_not(case: Case, said: str | None) -> None:
    causes = find_causes(case, lambda changes, steps: False)
    assert [said is not None and said in cause.message for cause in causes] == ([True] if said else [])


@pytest.mark.parametrize(
    ("agree", "named"),
    [
        ([{"clipping"}], ["clipping"]),
        ([{"clipping", "statistics", "even"}, {"clipping", "even"}], ["clipping", "even"]),
        ([{"clipping", "statistics", "even"}], ["clipping", "statistics", "even"]),
        ([], []),
    ],
)
def test_of_several_suspects_only_those_are_named_without_which_the_runs_do_not_agree(
    agree: list[set[str]], named: list[str]
) -> None:
    case = _case(loss=1.3, update=1.3)
    facts = replace(case.facts, clipping="clipnorm=1", per_replica_statistics=("norm",))
    data = Data(np.zeros((3, 1)), np.zeros((3, 1)), 3)
    causes = find_causes(replace(case, facts=facts, data=data), lambda changes, _: set(changes) in agree)
    words = {"clipping": "clips the gradients", "statistics": "batch normalisation", "even": "does not divide evenly"}
    assert [next(name for name, text in words.items() if text in cause.message) for cause in causes] == named


def test_what_differs_from_an_earlier_step_on_is_reported_first() -> None:
    """A step that returns no gradients: the weights differ after step 0, and so the loss of step 1."""

    def run(off: float) -> History:
        values: dict[str, dict[str, Any]] = {
            **{kind: {} for kind in ("metric", "gradient", "slot")},
            "loss": {"loss": np.array([[1.0], [0.8 + off]])},
            "weight": {"w": np.array([[1.0 + off], [0.9 + off]])},
        }
        return History("custom loop", 2, NAMES[:2], values, (1, 2), (0.1, 0.1))

    single = run(0.0)
    found = list(compare(run(0.05), single, [single], 1e-7).findings("custom loop"))
    assert [finding.where for finding in found] == ["weight w, step 0", "loss, step 1"]


@pytest.mark.parametrize(("off", "same"), [(1e-5, True), (1e-2, False)])
def test_what_depends_on_the_order_of_rows_is_not_taken_for_rounding(off: float, same: bool) -> None:
    def run(weight: float) -> History:
        values: dict[str, dict[str, Any]] = {kind: {} for kind in ("loss", "metric", "gradient", "slot")}
        values["weight"] = {"w": np.array([[1.0, 2.0 + weight]])}
        return History("custom loop", 2, NAMES[:2], values, (1,), (0.1,))

    assert is_rounded_otherwise(run(off), run(0.0)) == same


def test_rows_in_another_order_stay_in_their_batches() -> None:
    data = Data(np.arange(7), 10 * np.arange(7), 3)
    again = data.reordered(np.random.default_rng(0))
    assert (again.y == 10 * again.x).all()
    assert [sorted(again.batch(step)[0]) for step in range(3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(again.x) != list(data.x)
