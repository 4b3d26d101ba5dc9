"""A suite whose one check stops a host of the cluster, and then computes on it: it would wait for ever."""

from __future__ import annotations

import os
import signal

from harness.checking.check import Check, CheckContext
from harness.checking.suite import Suite
from harness.checks.registry import SUITE as SHIPPED
from harness.records import CheckResult, Exercised, Verdict


def _waits_for_a_stopped_host(context: CheckContext) -> CheckResult:
    import tensorflow as tf

    os.kill(int(os.environ["STOPPED"]), signal.SIGSTOP)
    with tf.device(context.devices[1].name):
        total = float(tf.reduce_sum(tf.random.normal([3])))
    return CheckResult("", Verdict.PASS, f"not reached: {total}", "", Exercised(values=1))


SUITE = Suite(
    checks=(Check("waits", "waits", "nothing", 2, 1, _waits_for_a_stopped_host),),
    configure=SHIPPED.configure,
    fingerprint=SHIPPED.fingerprint,
)
