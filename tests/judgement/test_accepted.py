"""``accept`` of ``verify``: findings that are right here stay visible and fail nothing."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness import Devices, Verdict, make_parallel, session, verify
from harness.errors import UsageError

_WEIGHTS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
REASON = "a hand-written tower of the demo"


@functools.cache
def weights() -> Any:
    return tf.Variable(_WEIGHTS, name="weights")


def dense(x: Any) -> Any:
    return tf.tanh(tf.matmul(x, weights()))


def by_hand(devices: Devices, x: Any, factor: float = 1.0) -> Any:
    parts = []
    for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
        with tf.device(device.name):
            parts.append(dense(part) * factor)
    return tf.concat(parts, 0)


@pytest.mark.cases("MatMul")
@pytest.mark.parametrize("what", ["gradient-placement", "H202", "MatMul"])
def test_a_finding_is_accepted_by_kind_code_or_place_and_stays_visible(what: str, devices: Devices) -> None:
    def run(factor: float = 1.0) -> Any:
        return verify(
            lambda x: by_hand(devices, x, factor), dense, {"x": X},
            devices=devices, variables=[weights()], accept=[(what, REASON)],
        )  # fmt: skip

    accepted = run()
    assert accepted.verdict is Verdict.WARN, accepted
    assert {finding.kind for finding in accepted.findings} == {"gradient-placement"}
    assert all(f"accepted ({REASON})" in finding.message for finding in accepted.findings)
    other = run(1.5)
    assert other.verdict is Verdict.FAIL
    assert "1.5 times" in other.reason


def test_no_cause_is_looked_for_where_values_that_differ_are_accepted(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searched(question: Any) -> None:
        raise AssertionError("a cause was looked for")

    monkeypatch.setattr("harness.judgement.diagnosis.explain.diagnose", searched)
    weights()  # not in the first call
    scaled = functools.partial(by_hand, devices, factor=1.5)
    found = verify(scaled, dense, {"x": X}, devices=devices, modes=["eager"], accept=[("value", REASON)])
    assert found.verdict is Verdict.WARN, found
    assert "Output differs, which is accepted" in found.findings[0].message
    with pytest.raises(AssertionError, match="a cause was looked for"):
        verify(scaled, dense, {"x": X}, devices=devices, modes=["eager"])


def test_what_is_accepted_and_no_longer_found_is_reported(devices: Devices) -> None:
    right = make_parallel(dense, devices)
    found = verify(right, dense, {"x": X}, devices=devices, variables=[weights()], accept=[("H202", REASON)])
    assert found.verdict is Verdict.WARN
    assert f"no longer found; remove from accept: H202 ({REASON})" in found.reason
    assert verify(right, dense, {"x": X}, devices=devices, variables=[weights()]).verdict is Verdict.PASS


def test_what_the_project_accepts_need_not_occur_in_each_verification(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "accept", (("H202", REASON),))
    options: dict[str, Any] = {"devices": devices, "variables": [weights()], "modes": ["graph"]}
    found = verify(functools.partial(by_hand, devices), dense, {"x": X}, **options)
    assert found.verdict is Verdict.WARN
    assert f"accepted ({REASON})" in found.findings[0].message
    assert verify(make_parallel(dense, devices), dense, {"x": X}, **options).verdict is Verdict.PASS


@pytest.mark.parametrize("accept", ["H202", [("H202",)], [("H202", "")], [("H999", "why")], ["H202"]])
def test_an_acceptance_without_a_reason_or_of_an_unknown_code_is_refused(accept: Any, devices: Devices) -> None:
    with pytest.raises(UsageError, match="accepted"):
        verify(dense, dense, {"x": X}, devices=devices, accept=accept)
