"""``make_parallel`` on generated programs: values, gradients, and where each op ran."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness.checks.check import Check, CheckContext, CheckOutcome
from harness.checks.tally import Tally
from harness.records import Finding, Verdict

if TYPE_CHECKING:
    from harness.devices.device import Devices
    from harness.judgement.verification import Verification
    from harness.strategies import Program

#: How many programs are generated: as many as take about 15 seconds on two cores.
EXAMPLES = 24
#: How long a failing program may be made smaller, in seconds.
SHRINK_S = 30.0


def run(context: CheckContext) -> CheckOutcome:
    """Verify each of the generated programs; the first that fails is made as small as can be."""
    return check_programs(context, EXAMPLES)


def check_programs(context: CheckContext, examples: int) -> CheckOutcome:
    """:func:`run` for another number of programs."""
    from harness.strategies import FLOATS, programs
    from harness.strategies.explore import explore

    search = _Search(context.devices)
    # TensorFlow has no integer matrix product on GPUs.
    on_gpu = any(device.parsed.kind == "GPU" for device in context.devices)
    strategy = programs(dtypes=FLOATS) if on_gpu else programs()
    exploration = explore(search.judge, strategy, examples=examples, seed=context.seed)
    tally = search.tally
    tally.measured["programs_generated"] = exploration.examples
    tally.measured["programs_proven"] = search.proven
    if exploration.failure is not None:
        _add_failure(exploration.failure.example, exploration.failure.error, tally)
    elif not search.proven:
        tally.unproven(f"{exploration.examples} programs were generated, and none of them could prove anything")
    else:
        tally.require_devices(context.devices)
    return tally.outcome(
        search.summary(exploration.examples),
        "run the program of the finding by itself; it is in run.json",
    )


class ProgramFailed(AssertionError):
    """A generated program did not pass."""

    def __init__(self, verification: Verification) -> None:
        self.verification = verification
        super().__init__(verification.reason)


class _Search:
    """Judges programs, and adds up what they exercised until the first that fails."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.tally = Tally()
        self.proven = 0
        self.empty = 0
        self._failed_at: float | None = None

    def judge(self, program: Program) -> None:
        """Verify ``program``; raise :class:`ProgramFailed` where it fails."""
        if self._failed_at is not None and time.monotonic() - self._failed_at > SHRINK_S:
            return  # nothing smaller is looked for: the last one that failed stands
        verification = verify_program(program, self.devices)
        if verification.verdict is Verdict.FAIL:
            self._failed_at = self._failed_at or time.monotonic()
            raise ProgramFailed(verification)
        if self._failed_at is None:
            self.tally.count(verification.exercised)
            # A program on a batch of 0 rows has no values; it proves that it runs, and counts for nothing else.
            self.empty += not program.rows
            self.proven += verification.passed and bool(verification.exercised.values)

    def summary(self, examples: int) -> str:
        """What a PASS rests on, in a sentence: all of the programs."""
        text = f"{self.proven} generated programs equal one device in values and gradients, each op in its place"
        if self.empty:
            text += f"; {self.empty} more ran on batches of 0 rows, which have no values"
        if rest := examples - self.proven - self.empty:
            text += f"; {rest} more could not prove anything (so ill-conditioned that any value would do)"
        return text


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


def _add_failure(program: Program, error: AssertionError, tally: Tally) -> None:
    if not isinstance(error, ProgramFailed):
        raise error
    for finding in error.verification.findings:
        tally.found(
            Finding(
                kind=finding.kind,
                where=f"generated program: {finding.where}",
                device=finding.device,
                expected=finding.expected,
                found=f"{finding.found}\nin the program\n{program!r}",
                message=finding.message,
                severity=finding.severity,
            )
        )


CHECK = Check(
    id="generated-programs",
    title="make_parallel on generated programs",
    proves=f"{EXAMPLES} random row-wise programs give the same values and gradients on all devices as on one, "
    "with every op and every backward op on the device that it belongs to",
    minimum_devices=2,
    typical_s=15,
    run=run,
)
