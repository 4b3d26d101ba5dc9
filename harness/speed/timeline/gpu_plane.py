"""Reads spans from the planes of GPUs: kernels and copies, as the driver timed them on each stream."""

from __future__ import annotations

import re

from harness.speed.timeline.spans import Kind, Span
from harness.speed.timeline.xplane import Capture
from harness.tensorflow_version import COPY, GPU_PLANE, NCCL_KERNEL, STREAM_LINE

_PLANE = re.compile(GPU_PLANE)
_STREAM = re.compile(STREAM_LINE)
_COLLECTIVE = re.compile(NCCL_KERNEL, re.IGNORECASE)
_COPY = re.compile(COPY, re.IGNORECASE)


def gpu_spans(capture: Capture) -> list[Span]:
    """List the kernels and copies of all GPUs of a process."""
    return [
        Span(f"{capture.task}{plane}", _kind(event.name), event.name, event.begin_ns, event.end_ns)
        for plane, lines in capture.planes.items()
        if _PLANE.match(plane)
        for line in lines
        if _STREAM.match(line.name)
        for event in line.events
    ]


def _kind(name: str) -> Kind:
    if _COLLECTIVE.match(name):
        return "collective"
    return "transfer" if _COPY.match(name) else "compute"
