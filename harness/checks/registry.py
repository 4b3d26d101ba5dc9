"""The checks, in the order in which they run: what the others rest on comes first.

Importing this loads no TensorFlow: each check imports it when it runs.
"""

from __future__ import annotations

from harness.checking.suite import Suite
from harness.checks import (
    cluster_hosts,
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
from harness.devices.usable import configure_usable
from harness.distribute import check as every_strategy
from harness.hardware.arithmetic import check as arithmetic
from harness.hardware.cards import check as cards
from harness.hardware.collectives import check as collectives
from harness.hardware.copies import check as copies
from harness.hardware.corruption import check as corruption
from harness.hardware.isolation import check as isolation
from harness.hardware.memory import check as memory
from harness.hardware.memory_settings import check as memory_settings
from harness.hardware.real import TensorFlowMachine
from harness.hardware.software import check as software
from harness.hardware.sustained_load import check as sustained_load
from harness.hardware.watch import CardWatch

#: How processes find the suite: ``module:attribute``.
REFERENCE = f"{__name__}:SUITE"

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
    configure=configure_usable,
    machine=TensorFlowMachine,
    watch=CardWatch,
)
