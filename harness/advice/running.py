"""Runs a script in this process, with another function in the place of the user's ``build``."""

from __future__ import annotations

import functools
import gc
import linecache
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness._tensorflow import count_traces
from harness.advice.script import REPEATED, Script, strategy_of
from harness.devices.device import Devices
from harness.distribute.strategies import make_strategy
from harness.errors import EvidenceError
from harness.evidence.tracing import trace
from harness.lazy import tf
from harness.parallel.data import make_parallel
from harness.parallel.model import pipeline
from harness.speed.record import DeviceMemory
from harness.speed.synchronise import synchronise, warm_up

#: What Python calls the scripts.
_MODULE = "advised_script"
_SOURCE = "TensorFlow's allocator on the device, less what it held before"


@dataclass(frozen=True)
class Running:
    """A script whose body has run: its names, and the call of one step."""

    names: dict[str, Any]
    script: Script

    def step(self) -> Any:
        """Take one step."""
        return eval(self.script.call, self.names)  # noqa: S307 - the script is ours

    def warmed_up(self) -> Running:
        """Take steps until nothing is traced any more."""
        with count_traces() as traces:
            warm_up(traces, self.step)
        return self

    def effect_of_a_step(self, *, training: bool) -> list[Any]:
        """How far a training step moves each weight of a Keras model, or what a forward pass returns; in float64."""
        if not training:
            return [np.asarray(each, np.float64) for each in tf.nest.flatten(self.step())]
        models = self.names.get("stages") or [self.names["model"]]
        weights = [weight for model in models for weight in model.weights]
        before = [np.asarray(each.numpy(), np.float64) for each in weights]
        synchronise(self.step())
        return [np.asarray(each.numpy(), np.float64) - old for each, old in zip(weights, before, strict=True)]


def start(name: str, script: Script, devices: Devices, build: Callable[[], tuple[Any, ...]]) -> Running:
    """Run the body of a script. Its lines have the numbers that they have in the whole script."""
    body = script.body.replace(strategy_of(script.reduction), "strategy_of_this_process()")
    body = "\n" * script.head.count("\n") + body.replace(REPEATED, f"{REPEATED}.with_options(not_tuned)")
    file = f"{name.replace(' ', '_')}.py"
    linecache.cache[file] = (len(body), None, body.splitlines(keepends=True), file)
    module = sys.modules[_MODULE] = types.ModuleType(_MODULE)
    names = module.__dict__
    not_tuned = tf.data.Options()
    not_tuned.autotune.enabled = False
    names |= {
        "harness": types.SimpleNamespace(make_parallel=make_parallel, pipeline=pipeline),
        "keras": tf.keras,
        "np": np,
        "tf": tf,
        "devices": devices,
        "build": build,
        "not_tuned": not_tuned,
        "strategy_of_this_process": functools.partial(make_strategy, "mirrored", devices.names, script.reduction),
    }
    exec(compile(body, file, "exec"), names)  # noqa: S102 - the script is ours
    return Running(names, script)


def copied_by(step: Callable[[], object]) -> int | None:
    """The bytes that a step copies between devices; ``None`` where TensorFlow does not tell."""
    try:
        traced = trace(step)
    except EvidenceError:  # of functions that run in other processes
        return None
    sizes = [each.size_bytes for each in traced.transfers] + [each.size_bytes for each in traced.collectives]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def peaks_of(run: Callable[[], object], devices: Devices) -> tuple[DeviceMemory, ...]:
    """Run something, and return the peak of each GPU, less what the GPU held before. Of CPUs nothing is known."""
    gc.collect()
    tf.test.experimental.sync_devices()
    before: dict[str, int] = {}
    for device in devices:
        name = device.parsed.short
        if device.parsed.kind != "GPU" or not device.parsed.in_this_process:
            continue
        try:
            before[name] = int(tf.config.experimental.get_memory_info(name)["current"])
        except ValueError:  # an allocator without statistics
            continue
        tf.config.experimental.reset_memory_stats(name)
    held = run()
    tf.test.experimental.sync_devices()
    peaks = {name: int(tf.config.experimental.get_memory_info(name)["peak"]) for name in before}
    del held
    return tuple(DeviceMemory(name, peak - before[name], _SOURCE) for name, peak in peaks.items())


def by_name(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step as a function of arguments that are given by name."""

    def called(**inputs: Any) -> Any:
        return step(*inputs.values())

    # AutoGraph passes this function by and converts the step.
    called.autograph_info__ = None  # type: ignore[attr-defined]
    return called
