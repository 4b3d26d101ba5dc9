"""The task of a worker process that checks a step of a user's script."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.runner.job import typed_task
from harness.runner.messages import Answer
from harness.runner.target import Target
from harness.runner.users_error import users_code
from harness.runner.worker import Send


@typed_task
def run(send: Send, spec: str | None, file: Path, function: str) -> None:
    """Configure devices, run the script ``file`` up to ``function`` (empty: its step is looked for), and check it."""
    from harness.checking.tally import Tally
    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure
    from harness.lazy import tf
    from harness.records import CheckResult
    from harness.script.capture import run_to_step
    from harness.script.check import check_step, devices_in_use, spec_for

    target = Target(file, function)
    chosen, why = spec_for(file.read_text(encoding="utf-8"), spec)
    if chosen is not None:
        configure(chosen)
        # The script may count on TensorFlow's default. What it moves is a finding.
        tf.config.set_soft_device_placement(True)
    with users_code(target):
        step = run_to_step(target)
    devices = devices_in_use()

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    say(f"devices: {', '.join(device.parsed.short for device in devices)}: {why}")
    checked = check_step(step, file, devices, say)
    tally = Tally()
    tally.add(checked.verification, step.name)
    mend = checked.mend
    if mend is not None and mend.speedup is not None:
        tally.measured["speedup_of_the_mend"] = mend.speedup.value
    outcome = tally.outcome(checked.verification.reason, "apply the change" if mend else "see the findings")
    result = CheckResult(
        check=f"{file.name}:{step.name}",
        verdict=checked.verification.verdict,
        reason=checked.verification.reason,
        next_step=outcome.next_step,
        exercised=outcome.exercised,
        findings=outcome.findings,
        spec=chosen or devices.spec,
        measured=outcome.measured,
        placements=outcome.placements,
    )
    answer: dict[str, object] = {
        "result": result,
        "said": str(checked.verification).splitlines(),
        "reason": why,
        "spec": chosen or devices.spec or "the script's devices",
        "fingerprint": fingerprint(devices),
    }
    if mend is not None:
        answer["mend"] = {
            "lines": list(mend.lines),
            "verdict": mend.verification.verdict.value,
            "reason": mend.verification.reason,
            "speedup": mend.speedup,
            "label": mend.label,
        }
    send(Answer(answer))
