"""The checks, in the order in which they run: what the others rest on comes first.

Importing this loads no TensorFlow: each check imports it when it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.checks import (
    cluster_hosts,
    devices_distinct,
    digits_classifier,
    ensembles,
    every_strategy,
    generated_programs,
    gradient_colocation,
    matpow,
    mirrored_strategy,
    model_parallel,
    polynomial_fit,
    task_processes,
    vector_add,
)
from harness.checks.hardware import (
    arithmetic,
    cards,
    collectives,
    copies,
    corruption,
    isolation,
    memory,
    memory_settings,
    software,
    sustained_load,
)
from harness.checks.suite import Suite
from harness.devices.device import Devices
from harness.records import Fingerprint

if TYPE_CHECKING:
    from harness.machine.machine import Machine


def _configure(spec: str) -> Devices:
    from harness.devices.runtime import configure

    return configure(spec)


def _fingerprint(devices: Devices) -> Fingerprint:
    from harness.devices.fingerprint import fingerprint

    return fingerprint(devices)


def _machine(devices: Devices) -> Machine:
    from harness.machine.real import TensorFlowMachine

    return TensorFlowMachine(devices)


SUITE = Suite(
    checks=(
        # These two first: processes of their own get the cards, of which this one has nothing yet.
        memory_settings.CHECK,
        isolation.CHECK,
        software.CHECK,
        cards.CHECK,
        memory.CHECK,
        copies.CHECK,
        arithmetic.CHECK,
        corruption.CHECK,
        collectives.CHECK,
        sustained_load.CHECK,
        devices_distinct.CHECK,
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
        cluster_hosts.CHECK,
        every_strategy.CHECK,
    ),
    configure=_configure,
    fingerprint=_fingerprint,
    machine=_machine,
)
