"""``harness.profile``: where the time and the memory of a program go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.devices.device import Device, Devices
from harness.devices.fingerprint import fingerprint
from harness.devices.runtime import current
from harness.errors import UsageError
from harness.speed.timeline.record import Profile
from harness.temporary import temporary_folder


def profile(
    program: Callable[..., Any],
    *args: Any,
    devices: Sequence[Device] | None = None,
    calls: int = 10,
    folder: str | Path | None = None,
) -> Profile:
    """Call a program under TensorFlow's profiler, and tell where its time and memory went.

    It is called until TensorFlow traces nothing any more, once more to record where its ops run, and then ``calls``
    times under the profiler. ``harness profile`` does the same in a process of its own, and draws the timeline.

    Args:
        program: any callable; its outputs are waited for.
        *args: what it is called with, each time.
        devices: the devices that it should use. ``None``: those that ``harness.configure`` has configured.
        calls: how many calls to profile, 1 or more.
        folder: where the profiler's own files go, which TensorBoard opens. ``None``: they are not kept.

    Returns:
        the times of each device and of the host in ns, summed over the calls, the memory of each device in bytes during
        the call with the highest peak, and the causes of a missing speedup that the profile shows. Notebooks show it
        as tables.

    Raises:
        UsageError: ``devices`` or ``calls`` is not usable.
        EvidenceError: the program could not be recorded or profiled; another profiler may be running.
        Exception: what ``program`` raises, unchanged.

    Examples:
        >>> found = harness.profile(step, x, devices=harness.configure("cpu:2"), calls=3)
        >>> found.calls
        3
        >>> [times.idle_share for times in found.listed]  # doctest: +SKIP
        [0.25, 0.27]
    """
    from harness.speed.timeline.profiling import profile_calls

    if isinstance(calls, bool) or not isinstance(calls, int) or calls < 1:
        raise UsageError(f"calls={calls!r}; accepted: a whole number of 1 or more")
    if not callable(program):
        raise UsageError(f"program={program!r} is not callable; give a function, and its arguments after it")
    given = current() if devices is None else devices
    if given is None:
        raise UsageError("devices=None, but none are configured; call harness.configure first, or give its result")
    known = Devices.given(given, UsageError)
    name = getattr(program, "__name__", type(program).__name__)
    with contextlib.ExitStack() as stack:
        kept = Path(folder) if folder is not None else stack.enter_context(temporary_folder("harness-profile-"))
        profiled = profile_calls(
            lambda: program(*args), devices=known, calls=calls, folder=kept, target=name, spec=known.spec
        )
    return replace(profiled.profile, reason=known.reason, fingerprint=fingerprint(known))
