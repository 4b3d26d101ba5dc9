"""The task of a worker process that checks a step of a user's script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.runner.job import typed_task
from harness.runner.messages import Answer
from harness.runner.target import Target
from harness.runner.users_error import users_code
from harness.runner.worker import Send

if TYPE_CHECKING:
    from harness.script.check import Mend


@typed_task
def run(send: Send, spec: str | None, file: Path, function: str, speed: bool) -> None:
    """Configure devices, run the script ``file`` up to ``function`` (empty: its step is looked for), and check it."""
    from contextlib import ExitStack, nullcontext
    from dataclasses import replace

    from harness.checking.tally import Tally
    from harness.devices.cores import usable_cores
    from harness.devices.device import Devices
    from harness.devices.fingerprint import fingerprint
    from harness.devices.runtime import configure
    from harness.lazy import tf
    from harness.script.capture import named_devices, run_to_step
    from harness.script.check import check_step, devices_in_use, measuring_spec, spec_for
    from harness.script.stand_ins import listed, missing_kind, standing_in

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    target = Target(file, function)
    source = file.read_text(encoding="utf-8")
    timed_on = measuring_spec(source, spec)
    chosen, why = spec_for(source, spec if timed_on is None else None)
    configured, kind = Devices((), spec=""), None
    if chosen is not None:
        configured = configure(chosen)
        # The script may count on TensorFlow's default. What it moves is a finding.
        tf.config.set_soft_device_placement(True)
        kind = missing_kind(named_devices(source), configured)
        if kind is not None:
            why += f", in place of {', '.join(f'{kind}:{number}' for number in range(len(configured)))}"
    with ExitStack() as place:
        if kind is not None:
            place.enter_context(standing_in(configured, kind))
        with users_code(target), nullcontext() if kind is None else listed(configured, kind):
            step = run_to_step(target)
        devices = devices_in_use()
        say(f"devices: {', '.join(device.parsed.short for device in devices)}: {why}")
        checked = check_step(step, file, devices, say, speed=speed)
    tally = Tally()
    tally.add(checked.verification, step.name)
    mend = checked.mend
    if checked.gain is not None:
        name = "speedup_over_one_device" if mend is None else "speedup_of_the_mend"
        tally.measured[name] = checked.gain.speedup.value
    result = replace(
        tally.result("", _next_step(mend)),
        check=f"{file.name}:{step.name}",
        verdict=checked.verification.verdict,
        reason=checked.verification.reason,
        spec=chosen or devices.spec,
    )
    answer: dict[str, object] = {
        "result": result,
        "said": str(checked.verification).splitlines(),
        "reason": why,
        "spec": chosen or devices.spec or "the script's devices",
        "fingerprint": fingerprint(devices),
        "compared": checked.compared,
    }
    if mend is not None:
        answer["mend"] = {
            "lines": list(mend.lines),
            "verdict": mend.verification.verdict.value,
            "reason": mend.verification.reason,
        }
    if speed and checked.timed:
        answer.update(gain=checked.gain, label=checked.label, step=step.name)
        if checked.gain is None:
            answer["timed_on"] = timed_on
            # What to ask for, where this machine can time what the script's devices would do.
            cores = len(devices) if chosen is not None and named_devices(source) else len(usable_cores()) + 1
            answer["hint"] = f"cores:{cores}" if timed_on is None and cores <= len(usable_cores()) else None
    send(Answer(answer))


def _next_step(mend: Mend | None) -> str:
    if mend is None:
        return "see the findings"
    place = next(line for line in mend.lines if line.startswith("@@")).strip("@ ")
    then = f"{mend.verification.verdict}: {mend.verification.reason}"
    return f"put @harness.colocate_gradients above {place}, and import harness. With this change, {then}"


@typed_task
def time_step(send: Send, spec: str, file: Path, function: str, change: bool) -> None:
    """Time a step of a script on devices that stand in for those that it names.

    With ``change``, it is timed within ``colocate_gradients`` against the step as it is, or else on all devices against
    the first.
    """
    from dataclasses import replace

    from harness.devices.runtime import configure
    from harness.lazy import tf
    from harness.script.capture import named_devices, run_to_step
    from harness.script.check import forms
    from harness.script.gain import gain_of
    from harness.script.stand_ins import listed, missing_kind, standing_in
    from harness.speed.label import speed_label

    target = Target(file, function)
    devices = configure(spec)
    tf.config.set_soft_device_placement(True)
    kind = missing_kind(named_devices(file.read_text(encoding="utf-8")), devices) or "GPU"
    with standing_in(devices, kind):
        with users_code(target), listed(devices, kind):
            step = run_to_step(target)
        # What the step puts in no scope runs on the first of its devices, as on a machine that has them.
        step = replace(step, default=devices[0].name)
        gain = gain_of(step, *forms(step, devices, change=change), devices)
    send(Answer({"gain": gain, "label": speed_label(devices).text}))
