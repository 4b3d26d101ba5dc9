"""verify called in several threads at once: each call waits for its turn, and has the verdict that it has alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from cause_programs import WEIGHTS

from harness import Devices, Verdict, Verification, make_parallel, verify

X = np.random.default_rng(3).normal(size=(8, 3)).astype(np.float32)


def test_programs_verified_in_threads_have_the_verdicts_that_they_have_alone(devices: Devices) -> None:
    def verified(wrong: bool) -> Verification:
        weights = tf.Variable(WEIGHTS)

        def model(x: Any) -> Any:
            return tf.nn.softmax(tf.matmul(x, weights), axis=1)

        def mixed(x: Any) -> Any:
            return tf.nn.softmax(tf.matmul(x, weights), axis=0)

        return verify(
            make_parallel(mixed if wrong else model, devices), model, {"x": X}, devices=devices, variables=[weights]
        )

    cases = [False, True, False, True]
    alone = {wrong: verified(wrong) for wrong in (False, True)}
    with ThreadPoolExecutor(len(cases)) as pool:
        found = list(pool.map(verified, cases))
    assert alone[False].passed, alone[False]
    assert alone[True].verdict is Verdict.FAIL
    for wrong, each in zip(cases, found, strict=True):
        assert (each.verdict, each.exercised) == (alone[wrong].verdict, alone[wrong].exercised), each
        assert [finding.kind for finding in each.findings] == [finding.kind for finding in alone[wrong].findings]
