"""Checks ``make_parallel`` on generated programs: values, gradients, and where each op ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.checking.check import Check, CheckContext, Level
from harness.checks.search import Search
from harness.records import CheckResult

if TYPE_CHECKING:
    from harness.devices.device import Devices
    from harness.judgement.verification import Verification
    from harness.strategies import Program

#: How many programs are generated. On two slow cores, those of ``quick`` take about 6 seconds.
EXAMPLES = {Level.QUICK: 6, Level.STANDARD: 48, Level.DEEP: 192}


def run(context: CheckContext) -> CheckResult:
    """Verify generated programs; shrink the first that fails."""
    from harness.strategies import FLOATS, programs

    search: Search[Program] = Search(
        lambda program: verify_program(program, context.devices), lambda program: not program.rows
    )
    strategy = programs(dtypes=FLOATS) if context.on_gpu else programs()
    if search.run(strategy, EXAMPLES[context.level], context.seed) and search.proven:
        search.tally.require_devices(context.devices)
    proven = f"{search.proven} generated programs match the single-device run, each op on its device"
    return search.tally.result(
        search.summary(proven), "run the program in the finding by itself; its source is in run.json"
    )


def verify_program(program: Program, devices: Devices) -> Verification:
    """``program`` under ``make_parallel`` on ``devices`` against itself on one device."""
    from harness.judgement.verify import verify
    from harness.parallel.data import make_parallel

    built = program.build(devices.host)
    parallel = make_parallel(built.fn, devices, axis=program.axis, broadcast=program.broadcast)
    return verify(
        parallel,
        built.fn,
        program.inputs(),
        devices=devices,
        variables=built.variables,
        gradients=program.differentiable,
    )


CHECK = Check(
    id="generated-programs",
    title="make_parallel on generated programs",
    proves="random row-wise programs match the single-device run in values and gradients, with every "
    "forward and backward op on the right device",
    minimum_devices=2,
    typical_s=6,
    run=run,
)
