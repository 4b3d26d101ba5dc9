"""Checks a step of a script: its verdict, what would mend it, and what that or several devices gain."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName
from harness.devices.runtime import current
from harness.errors import UsageError
from harness.judgement.state import variables_of
from harness.judgement.verification import Verification
from harness.judgement.verify import verify
from harness.lazy import tf
from harness.parallel.gradients import colocate_gradients
from harness.parallel.one_device import on_first_device
from harness.records import Verdict
from harness.script.capture import StepCall, named_devices
from harness.script.gain import Gain, gain_of
from harness.script.inputs import inputs_of, program_of
from harness.speed.label import speed_label

#: How a script configures devices itself.
_CONFIGURES = re.compile(r"\bharness\.configure\(|set_logical_device_configuration|set_virtual_device_configuration")


@dataclass(frozen=True)
class Mend:
    """A change of the script, as lines of a diff, with its verification."""

    lines: tuple[str, ...]
    verification: Verification


@dataclass(frozen=True)
class Checked:
    """The verdict of a step, and the change that mends it, where one is known."""

    step: StepCall
    devices: Devices
    verification: Verification
    mend: Mend | None
    #: What the change gains, or, of a step that needs none, what several devices gain over one.
    gain: Gain | None = None
    #: What the gain was measured on, or why it was not.
    label: str = ""

    @property
    def compared(self) -> bool:
        """Whether the step, or a change of it, passes with values that were compared."""
        last = self.verification if self.mend is None else self.mend.verification
        return last.verdict in (Verdict.PASS, Verdict.WARN) and last.exercised.values > 0

    @property
    def timed(self) -> bool:
        """Whether there is something to time: a step, or a change of it, in which nothing fails."""
        if self.mend is not None:
            # A mend whose values could not all be judged, such as those of a step that draws numbers, is timed too.
            return self.mend.verification.verdict is not Verdict.FAIL
        return self.verification.verdict in (Verdict.PASS, Verdict.WARN)


def measuring_spec(source: str, spec: str | None) -> str | None:
    """The spec, where its devices are of other processes, can only be timed, and stand in for those of the script."""
    servers = spec is not None and spec.partition(":")[0] == "cores"
    return spec if servers and named_devices(source) and not _CONFIGURES.search(source) else None


def spec_for(source: str, spec: str | None) -> tuple[str | None, str]:
    """The devices to configure before a script runs, and why; ``None``: the script configures them itself."""
    if spec is not None:
        return spec, "as requested"
    if _CONFIGURES.search(source):
        return None, "as the script configures them"
    names = named_devices(source)
    if "GPU" in names:
        wanted, there = max(2, names["GPU"]), len(tf.config.list_physical_devices("GPU"))
        if there >= wanted:
            return f"gpu:{wanted}", "the script uses GPUs"
        return f"softgpu:{wanted}", f"the script uses {wanted} GPUs, and this machine has {there}"
    return f"cpu:{max(2, names.get('CPU', 0))}", "the script names no GPU"


def devices_in_use() -> Devices:
    """The devices that ``harness.configure`` has configured, or else all GPUs, or all CPUs, that TensorFlow lists."""
    known = current()
    if known is not None:
        return known
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    listed = tf.config.list_logical_devices(kind)
    found = [Device(each.name, "gpu" if kind == "GPU" else "logical-cpu", "") for each in listed]
    if len(found) < 2:
        raise UsageError(f"the script runs with one {kind} alone; give --devices, such as --devices cpu:2")
    return Devices(found, spec="")


def check_step(
    step: StepCall, path: Path, devices: Devices, progress: Callable[[str], None], *, speed: bool = True
) -> Checked:
    """Verify a step against itself on the first device; where its backward ops are misplaced, try to mend that.

    With ``speed``, and where the devices are independent, time it: the change against the step as it is, or a step
    that needs none against itself on the first device.
    """
    inputs = inputs_of(step)
    variables = [each for each in variables_of([program_of(step, step.fn)], []) if getattr(each, "trainable", False)]
    progress(f"verifying {step.name} ({path.name}:{step.line}) on {devices.counted}")

    def verified(fn: Callable[..., Any]) -> Verification:
        return verify(program_of(step, fn), inputs=inputs, devices=devices, variables=variables)

    found = verified(step.fn)
    _require_named(found, devices)
    mend = None
    if "gradient-placement" in {finding.kind for finding in found.findings}:
        progress("verifying it with colocate_gradients")
        mend = Mend(_decorated(path, step), verified(colocate_gradients(step.fn)))
    checked = Checked(step, devices, found, mend)
    if not (speed and checked.timed):
        return checked
    label = speed_label(devices)
    if not label.gates:
        return replace(checked, label=label.text)
    progress("measuring its speed")
    return replace(
        checked, label=label.text, gain=gain_of(step, *forms(step, devices, change=mend is not None), devices)
    )


def forms(step: StepCall, devices: Devices, *, change: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two forms of a step to time: as it is and changed, or else on the first device and on all."""
    return (step.fn, colocate_gradients(step.fn)) if change else (on_first_device(step.fn, devices), step.fn)


def _require_named(found: Verification, devices: Devices) -> None:
    """Raise UsageError if the step names devices that are absent, as those of a larger machine."""
    # TensorFlow lists local devices by a short name, such as /device:CPU:1.
    listed = [DeviceName.parse(each.name) for each in tf.config.list_logical_devices()]
    there = {(each.kind, index) for each in listed if each.in_this_process for index in (None, each.index)}
    asked = {op.requested for trace in found.traces.values() for op in trace.ops if op.requested is not None}
    named = [each for each in asked if each.in_this_process and each.kind is not None]
    absent = [each for each in named if (each.kind, each.index) not in there]
    if absent:
        names = ", ".join(sorted(each.short for each in absent))
        count = max(each.index or 0 for each in absent) + 1
        given = devices.spec.partition(":")[0]
        spec = given or {"GPU": "softgpu", "CPU": "cpu"}.get(absent[0].kind or "", "softgpu")
        raise UsageError(
            f"the step names {names}, absent from the devices of {devices.spec or 'the script'}; give --devices, such "
            f"as --devices {spec}:{count}"
        )


def _decorated(path: Path, step: StepCall) -> tuple[str, ...]:
    """The lines that put ``colocate_gradients`` above the function, as a diff."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    definition = next(
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.lineno == step.line
    )
    first = min([definition.lineno, *(each.lineno for each in definition.decorator_list)])
    shown = lines[first - 1 : definition.lineno]
    indent = " " * definition.col_offset
    imports = [] if re.search(r"^\s*import harness\b", source, re.MULTILINE) else ["+import harness"]
    return (
        *imports,
        f"@@ {path.name}:{first} @@",
        f"+{indent}@harness.colocate_gradients",
        *(f" {line}" for line in shown),
    )
