"""The checks, in the order in which they run: what the others rest on comes first.

Importing this loads no TensorFlow: each check imports it when it runs.
"""

from __future__ import annotations

from harness.checks import (
    devices_distinct,
    digits_classifier,
    ensembles,
    generated_programs,
    gradient_colocation,
    matpow,
    mirrored_strategy,
    model_parallel,
    polynomial_fit,
    task_processes,
    vector_add,
)
from harness.checks.hardware import cards, copies, corruption, memory, sustained_load
from harness.checks.suite import Suite
from harness.devices.device import Devices
from harness.records import Fingerprint


def _configure(spec: str) -> Devices:
    from harness.devices.runtime import configure

    return configure(spec)


def _fingerprint(devices: Devices) -> Fingerprint:
    from harness.devices.fingerprint import fingerprint

    return fingerprint(devices)


SUITE = Suite(
    checks=(
        devices_distinct.CHECK,
        cards.CHECK,
        memory.CHECK,
        copies.CHECK,
        corruption.CHECK,
        sustained_load.CHECK,
        vector_add.CHECK,
        matpow.CHECK,
        gradient_colocation.CHECK,
        generated_programs.CHECK,
        model_parallel.CHECK,
        ensembles.CHECK,
        task_processes.CHECK,
        polynomial_fit.CHECK,
        digits_classifier.CHECK,
        mirrored_strategy.CHECK,
    ),
    configure=_configure,
    fingerprint=_fingerprint,
)
