"""The self-test counts what is found, missed and accused, and its exit code says whether all went well."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sample_records import fingerprint

import harness
from harness.distribute.single_device import LOOPS as SESSIONS
from harness.errors import UsageError
from harness.faults import trainings
from harness.faults.catalogue import CATALOGUE
from harness.faults.fault import Case, Fault, Planted
from harness.faults.origin import lines_at_fault
from harness.faults.selftest import SelfTest, Tried, select, try_fault
from harness.judgement.verification import Verification
from harness.records import Exercised, Finding, Verdict


@dataclass(frozen=True)
class _Given(Planted):
    """Judged as given."""

    found: Verification
    clean: Verification
    kinds: frozenset[str] = frozenset({"value"})
    modes: tuple[str, ...] = ("eager", "graph")
    also: frozenset[str] = frozenset({"unused-device"})

    def judge(self, devices: harness.Devices, *, faulty: bool) -> Verification:
        return self.found if faulty else self.clean


def _verification(verdict: Verdict, reason: str, *findings: Finding) -> Verification:
    return Verification(verdict, reason, findings, Exercised())


def _finding(kind: str, mode: str) -> Finding:
    return Finding(kind, "output", None, "1", "2", "it differs", mode=mode)


PASSED = _verification(Verdict.PASS, "it matches")
FOUND = _verification(Verdict.FAIL, "Rows were dropped (a.py:3)", _finding("value", "eager, graph"))
DEVICES = harness.Devices((), spec="")


def _tried(found: Verification = FOUND, clean: Verification = PASSED) -> Tried:
    return try_fault(Fault("V99-planted", "a fault", "here", lambda _: _Given(found, clean), "rows were"), DEVICES)


def test_a_fault_that_is_found_with_its_cause_and_a_twin_that_passes_are_good() -> None:
    tried = _tried()
    assert (tried.good, tried.cause, tried.missed, tried.accused, tried.line_named) == (True, "right", (), (), True)
    assert tried.result == "found, cause right"


@pytest.mark.parametrize(
    ("found", "clean", "result"),
    [
        (PASSED, PASSED, "missed (eager, graph)"),
        (replace(FOUND, findings=(_finding("value", "eager"),)), PASSED, "missed (graph)"),
        (replace(FOUND, findings=(_finding("transfer", "eager, graph"),)), PASSED, "missed (eager, graph)"),
        (
            FOUND,
            replace(FOUND, findings=(_finding("dtype", "graph"),)),
            "found, false alarm on the twin (graph), cause right",
        ),
        (FOUND, replace(PASSED, verdict=Verdict.UNKNOWN), "found, twin neither passed nor failed, cause right"),
    ],
)
def test_what_is_missed_accused_or_not_proven_is_not_good(
    found: Verification, clean: Verification, result: str
) -> None:
    tried = _tried(found, clean)
    assert not tried.good
    assert tried.result.startswith(result)


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (replace(FOUND, reason="The optimizer is applied 4 times"), "wrong"),
        (replace(FOUND, reason="Output differs, and no known cause gives these numbers"), "none"),
    ],
)
def test_another_cause_is_wrong_and_no_cause_is_neither_right_nor_wrong(found: Verification, cause: str) -> None:
    assert _tried(found).cause == cause


def test_kinds_of_finding_that_do_not_belong_to_the_fault_are_listed() -> None:
    others = [_finding("transfer", "eager"), _finding("unused-device", "graph")]
    tried = _tried(replace(FOUND, findings=(*FOUND.findings, *others)))
    assert tried.unexpected == ("transfer",)
    assert "also gives transfer" in tried.result


def test_a_finding_of_one_loop_of_a_training_is_of_that_mode_and_others_are_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [planted] = select(["T01"])
    case = planted.plant(DEVICES)
    loops = [(loop.loop, name) for name, loop in SESSIONS.items()]
    told = [_finding("value", loop) for loop, _ in loops]
    result = _verification(Verdict.FAIL, "it differs", *told, _finding("sync", ""))
    monkeypatch.setattr(trainings, "examine", lambda *_: result)
    found = case.judge(DEVICES, faulty=True)
    assert [finding.mode for finding in found.findings] == [*(name for _, name in loops), ", ".join(case.modes)]


def test_what_raises_is_reported_and_does_not_end_the_test() -> None:
    def plant(_: harness.Devices) -> _Given:
        raise ValueError("no such program")

    tried = try_fault(Fault("V99-broken", "a fault", "here", plant, ""), DEVICES)
    assert not tried.good
    assert tried.result == "ended in an error: ValueError: no such program"


def test_what_xla_compiles_is_skipped_on_software_gpus_and_tried_elsewhere() -> None:
    made = []
    for kind in ("software-gpu", "gpu"):
        device = harness.Device("/job:localhost/replica:0/task:0/device:GPU:0", kind, "/physical_device:GPU:0")
        fault = Fault("P06-planted", "a fault", "here", lambda _: _Given(FOUND, PASSED), "rows were", needs_xla=True)
        made.append(try_fault(fault, harness.Devices([device], spec="gpu")))
    skipped, tried = made
    assert skipped.result == "skipped: XLA has no compiler for software GPUs"
    assert tried.result == "found, cause right"
    both = SelfTest("softgpu:1", (), fingerprint(), (skipped, tried), 1.0)
    assert both.good
    assert [row[:4] for row in both.rows()] == [("placement", "1", "2", "2"), ("all", "1", "2", "2")]
    alone = replace(both, tried=(skipped,))
    assert not alone.good, "nothing was tried"
    assert list(alone.rows()) == []


def test_the_figures_of_groups_and_of_all_add_up() -> None:
    located = (replace(_tried(), origin=("a.py:3", "a.py:9")), replace(_tried(clean=FOUND), origin=("a.py:4",)))
    tried = (*located, replace(_tried(PASSED), group="gradients"))
    made = SelfTest("cpu:4", (), fingerprint(), tried, 1.0)
    assert not made.good
    assert [row[:-1] for row in made.rows()] == [
        ("values", "2", "4", "4", "0", "2", "100.0%", "0.0%", "50.0%"),
        ("gradients", "1", "2", "0", "2", "0", "0.0%", "0.0%", "-"),
        ("all", "3", "6", "4", "2", "2", "66.7%", "0.0%", "50.0%"),
    ]
    assert not replace(made, tried=()).good, "nothing was tried"


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, []),
        ({"cause": "none"}, ["cause right"]),
        ({"cause": "wrong"}, ["cause right", "cause wrong"]),
        ({"origin": ("a.py:4",)}, ["first op right"]),
    ],
)
def test_a_share_of_the_whole_catalogue_that_misses_its_aim_fails_the_self_test(
    changed: dict[str, Any], missed: list[str]
) -> None:
    tried = [replace(_tried(), name=name, origin=("a.py:3",)) for name in CATALOGUE]
    some = len(tried) // 4
    few = [replace(each, **changed) for each in tried[:some]]
    made = SelfTest("cpu:4", (), fingerprint(), (*few, *tried[some:]), 1.0)
    assert [line.partition(":")[0] for line in made.aims_missed] == missed
    assert made.good == (not missed)
    # A part of the catalogue says nothing of the shares of the whole.
    assert replace(made, tried=tuple(few)).good


def test_the_first_op_is_right_where_the_first_sentence_names_one_of_its_lines() -> None:
    named = replace(_tried(), origin=("a.py:3", "a.py:9"))
    assert named.origin_named
    assert "first op" not in named.result
    # What follows from the cause has lines too: these are not its place.
    for said in ("Rows were dropped (a.py:4). Output (a.py:3) differs", "Rows were dropped (aa.py:3)", "Dropped"):
        missed = replace(named, said=said)
        assert not missed.origin_named
        assert "first op not named" in missed.result


def test_the_place_of_a_fault_is_the_first_op_that_its_twin_does_not_run() -> None:
    weights = tf.Variable([1.0, 2.0])

    def case(parallel: Any, twin: Any) -> Case:
        def fresh(fn: Any) -> Any:
            return lambda x: (weights.assign([1.0, 2.0]), fn(x))[1]

        return Case(fresh(parallel), fresh(twin), twin, {"x": np.array([3.0, 4.0], np.float32)}, frozenset({"value"}))

    def right(x: Any) -> Any:
        mean = tf.reduce_mean(x * weights)
        weights.assign_add([mean, mean])
        return tf.concat([x, x[:1]], 0)

    def wrong_mask(x: Any) -> Any:
        mean = tf.reduce_mean(x * weights)
        weights.assign_add([mean, mean])
        return tf.concat([x, x[1:]], 0)  # the slice

    def left_out(x: Any) -> Any:
        tf.reduce_mean(x * weights)
        return tf.concat([x, x[:1]], 0)  # nothing is assigned before

    def twice(x: Any) -> Any:
        mean = tf.reduce_mean(x * weights)
        weights.assign_add([mean, mean])
        weights.assign_add([mean, mean])  # again
        return tf.concat([x, x[:1]], 0)

    def swapped(x: Any) -> Any:
        weights.assign_add([1.0, 1.0])
        tf.exp(x)

    def in_order(x: Any) -> Any:
        tf.exp(x)
        weights.assign_add([1.0, 1.0])

    for parallel, twin, line in (
        (wrong_mask, right, 4),
        (left_out, right, 3),
        (twice, right, 4),
        (swapped, in_order, 2),
        (right, right, None),
    ):
        found = lines_at_fault(case(parallel, twin), case(parallel, twin))
        wanted = f"tests/faults/test_selftest.py:{parallel.__code__.co_firstlineno + line - 1}" if line else None
        assert wanted in found if wanted else not found, (parallel.__name__, found)


def test_faults_are_selected_by_name_class_or_group() -> None:
    assert select(()) == list(CATALOGUE.values())
    assert [fault.name for fault in select(["V03-even-split"])] == ["V03-even-split"]
    assert {fault.id for fault in select(["V01", "P05"])} == {"V01", "P05"}
    assert {fault.group for fault in select(["patterns"])} == {"patterns"}
    with pytest.raises(UsageError, match=r"is named 'V03-even'; accepted: values, .*V03-even-split"):
        select(["V03-even"])
