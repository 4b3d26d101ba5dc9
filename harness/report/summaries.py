"""``harness.write_summaries``: results of the harness beside the curves of a training, in TensorBoard.

Scalars and texts are written as TensorBoard's plug-ins "scalars" and "text" read them: the plug-in's name in the
metadata, and rank 0, or a vector of Markdown (tensorboard/plugins/scalar/metadata.py and .../text/metadata.py). So
TensorBoard need not be installed where they are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from harness.devices.name import DeviceName
from harness.errors import UsageError
from harness.evidence.trace import Trace
from harness.judgement.verification import Verification
from harness.lazy import tf
from harness.speed.record import SpeedupRecord
from harness.speed.timeline.record import Profile

#: What can be written.
Result: TypeAlias = "SpeedupRecord | Profile | Trace | Verification"
_Value: TypeAlias = "float | str"

#: ``DataClass`` in tensorflow/core/framework/summary.proto.
_SCALAR, _TENSOR = 1, 2


def write_summaries(folder: str | Path, *results: Result, step: int = 0, name: str = "harness") -> None:
    """Write results for TensorBoard: speedups, memory, and where ops ran, as curves over ``step`` and as texts.

    A speedup has its interval; a profile the time of a call, and for each device the share of it in which it is busy
    and the peak of its memory in bytes; a trace the forward and gradient ops of each device; a verification 1 if it
    passed, else 0, its findings, and its traces.

    Args:
        folder: the one that ``tensorboard --logdir`` reads; it may have other events, such as Keras's.
        *results: what ``measure_speedup``, ``profile``, ``trace`` and ``verify`` return.
        step: the step or epoch at which they were taken.
        name: the first part of each tag, which groups the curves.

    Raises:
        UsageError: a result is of another type, there is none, or the folder cannot be written.

    Examples:
        >>> harness.write_summaries("logs", harness.trace(step, x), step=0)
    """
    known = (SpeedupRecord, Profile, Trace, Verification)
    given: tuple[object, ...] = results
    for result in given:
        if not isinstance(result, known):
            accepted = ", ".join(each.__name__ for each in known)
            raise UsageError(f"a result is of type {type(result).__name__}, which is not written; accepted: {accepted}")
    if not results:
        raise UsageError("no result to write; give what harness.trace, verify, profile or measure_speedup returned")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"folder={str(folder)!r} cannot be written: {error.strerror or error}") from error
    writer = tf.summary.create_file_writer(str(folder), filename_suffix=".harness")
    with writer.as_default(), tf.device("/CPU:0"):
        for tag, value in (each for result in results for each in _values(result)):
            if isinstance(value, float):
                tensor, metadata = tf.constant(value, tf.float32), _metadata("scalars", _SCALAR)
            else:
                tensor, metadata = tf.constant([value]), _metadata("text", _TENSOR)
            tf.summary.write(f"{name}/{tag}", tensor, step=step, metadata=metadata)
    writer.close()


def _metadata(plugin: str, kind: int) -> object:
    named = tf.compat.v1.SummaryMetadata.PluginData(plugin_name=plugin)
    return tf.compat.v1.SummaryMetadata(plugin_data=named, data_class=kind)


def _values(result: Result) -> Iterator[tuple[str, _Value]]:
    """The tags of a result with their values: numbers for curves, Markdown for texts."""
    if isinstance(result, SpeedupRecord):
        found = result.speedup
        yield from {
            f"speedup/{result.label}": found.value,
            f"speedup/{result.label}, lower": found.lower,
            f"speedup/{result.label}, upper": found.upper,
        }.items()
        yield f"speedup/{result.label}, warnings", _markdown([repr(result), *result.warnings])
    elif isinstance(result, Profile):
        yield f"profile/{result.target}, ms of a call", result.wall_ns / result.calls / 1e6
        for times in result.listed:
            yield f"busy share/{_short(times.device)}", float(1 - times.idle_share)
        for course in result.memory:
            yield f"memory peak in bytes/{_short(course.device)}", float(course.peak_bytes)
        yield f"profile/{result.target}", _markdown(result.summary())
    elif isinstance(result, Trace):
        yield from _of_trace(result, "")
    else:
        yield "verification/passed", float(result.passed)
        yield "verification/findings", _markdown([f"{result.verdict}: {result.reason}", *result.lines()])
        for mode, trace in result.traces.items():
            yield from _of_trace(trace, f"{mode}, ")


def _of_trace(trace: Trace, mode: str) -> Iterator[tuple[str, _Value]]:
    counts = Counter((op.device.short, op.role) for op in trace.ops if op.device is not None)
    for (device, role), count in sorted(counts.items()):
        if role in ("forward", "gradient"):
            yield f"placement/{mode}{role} ops of {device}", float(count)
    # A block of code, whose columns stay where they are.
    yield f"placement/{mode}ops by device", "\n".join(f"    {line}" for line in str(trace).splitlines())


def _markdown(lines: Sequence[str]) -> str:
    return "\n\n".join(lines)


def _short(device: str) -> str:
    return DeviceName.parse(device).short
