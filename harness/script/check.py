"""Checks a step of a script: its verdict, what would mend it, and what that gains."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName
from harness.devices.runtime import current
from harness.errors import UsageError
from harness.judgement.state import variables_of
from harness.judgement.verification import Verification
from harness.judgement.verify import verify
from harness.lazy import tf
from harness.parallel.gradients import colocate_gradients
from harness.script.capture import Step, named_devices, parameters
from harness.speed.estimate import paired_speedup
from harness.speed.label import speed_label
from harness.speed.measure import measure_pairs
from harness.speed.record import Interval

#: How a script configures devices itself.
_CONFIGURES = re.compile(r"\bharness\.configure\(|set_logical_device_configuration|set_virtual_device_configuration")
#: Seconds for measuring what a change gains.
_BUDGET_S = 20.0


@dataclass(frozen=True)
class Mend:
    """A change of the script, as lines of a diff, with its verification and its speedup over the step as it is."""

    lines: tuple[str, ...]
    verification: Verification
    speedup: Interval | None = None
    #: What the speedup is one of, or why none was measured.
    label: str = ""


@dataclass(frozen=True)
class Checked:
    """The verdict of a step, and the change that mends it, where one is known."""

    step: Step
    devices: Devices
    verification: Verification
    mend: Mend | None


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


def check_step(step: Step, path: Path, devices: Devices, progress: Callable[[str], None]) -> Checked:
    """Verify a step against itself on the first device; where its backward ops are misplaced, try to mend that."""
    inputs = inputs_of(step)
    variables = [each for each in variables_of([_program(step, step.fn)], []) if getattr(each, "trainable", False)]
    progress(f"verifying {step.name} ({path.name}:{step.line}) on {devices.counted}")

    def verified(fn: Callable[..., Any]) -> Verification:
        return verify(_program(step, fn), inputs=inputs, devices=devices, variables=variables)

    found = verified(step.fn)
    _require_named(found, devices)
    if "gradient-placement" not in {finding.kind for finding in found.findings}:
        return Checked(step, devices, found, None)
    progress("verifying it with colocate_gradients")
    mended = colocate_gradients(step.fn)
    then = verified(mended)
    if not then.passed:
        return Checked(step, devices, found, Mend(_decorated(path, step), then))
    label = speed_label(devices)
    speedup = None
    text = label.text
    if label.gates:
        progress("measuring what it gains")
        speedup = _speedup(step, mended, inputs, devices)
    return Checked(step, devices, found, Mend(_decorated(path, step), then, speedup, text))


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
        spec = {"GPU": "softgpu", "CPU": "cpu"}.get(absent[0].kind or "", "softgpu")
        raise UsageError(
            f"the step names {names}, absent from the devices of {devices.spec or 'the script'}; give --devices, such "
            f"as --devices {spec}:{count}"
        )


def inputs_of(step: Step) -> dict[str, Any]:
    """The arguments of a step that have tensors or arrays in them, by the names of its parameters.

    Raises:
        UsageError: an argument is an iterator, which no two runs can start from.
    """
    found = {}
    for name, value in parameters(step.fn, step.args, step.kwargs).arguments.items():
        if isinstance(value, Iterator):
            raise UsageError(
                f"{step.name}: the argument {name} is an iterator ({type(value).__name__}), which gives each run "
                "another batch; pass the batch itself to the step: step(next(iterator))"
            )
        if any(tf.is_tensor(leaf) or isinstance(leaf, np.ndarray) for leaf in tf.nest.flatten(value)):
            found[name] = value
    return found


def _program(step: Step, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` over the inputs of the step; its other arguments, such as a model, are those of the call."""
    rest = step.args, step.kwargs

    def program(**inputs: Any) -> Any:
        bound = parameters(step.fn, *rest)
        bound.arguments.update(inputs)
        return fn(*bound.args, **bound.kwargs)

    program.fn = fn  # type: ignore[attr-defined]
    return program


def _speedup(step: Step, mended: Callable[..., Any], inputs: Mapping[str, Any], devices: Sequence[Device]) -> Interval:
    one = tf.constant(1.0)

    def timed(fn: Callable[..., Any]) -> Callable[[], Any]:
        # Each call goes on from the weights of the last one, so that the results of the two are not alike.
        program = tf.function(_program(step, fn))

        def call() -> Any:
            program(**inputs)
            return one

        return call

    samples = measure_pairs(
        timed(step.fn),
        timed(mended),
        devices=devices,
        budget_s=_BUDGET_S,
        half_width=0.02,
        confidence=0.95,
        seed=0,
        tolerance=None,
    ).samples
    return paired_speedup(samples.single_ns, samples.parallel_ns, 0.95)


def _decorated(path: Path, step: Step) -> tuple[str, ...]:
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
