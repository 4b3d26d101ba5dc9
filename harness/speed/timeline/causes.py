"""The usual causes of no gain, each a rule on a finished profile: a sentence with the cause, the figure, what to do.

The thresholds are where a cause costs so much that it is worth a sentence; all figures are in the profile anyway.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.devices.name import DeviceName
from harness.speed.timeline.record import Cause, DeviceTimes, Profile

#: Above this share of the compute time, ops of which the device is not known forbid a sentence about devices.
_UNATTRIBUTED = 0.2
#: A device computes for real from this share of what the busiest one computes.
_TAKES_PART = 0.1
#: Below this share of the overlap that is possible, devices are taking turns.
_LITTLE_OVERLAP = 0.1
#: Shares of the wall time from which transfers, input and the host's own time are called the cause. Servers on loopback
#: were seen to wait for tensors for up to 28 % of the time without that being what held them back.
_MUCH_TRANSFER = 0.35
_MUCH_INPUT = 0.3
_MUCH_HOST = 0.5
#: Shares of calls that trace anew; the first call after a warm-up does not.
_MOST_CALLS = 0.5


def causes_of(profile: Profile) -> tuple[Cause, ...]:
    """The causes that a profile shows, the surest first."""
    return tuple(cause for rule in _RULES if (cause := rule(profile)) is not None)


def backward_on_one_device(profile: Profile) -> Cause | None:
    """Several devices run forward ops, and one of them all the gradient ops (FAULTS P01)."""
    forward = [each for each in profile.listed if each.forward_ops]
    without = [each for each in forward if not each.gradient_ops]
    gradient = sum(each.gradient_ops for each in profile.times)
    there = [each for each in profile.times if each.gradient_ops]
    if len(forward) < 2 or not without or len(there) != 1 or not gradient:
        return None
    return Cause(
        "backward-on-one-device",
        f"Backward on one device: all {gradient} gradient ops of a call ran on {_short(there[0])}, while forward ops "
        f"ran on {len(forward)} devices; a tape plays back where gradient() is called: use harness.make_parallel, "
        "which keeps each backward op on the device of its forward op, or take each tower's gradient in its scope.",
    )


def towers_serialised(profile: Profile) -> Cause | None:
    """Several devices compute, but one after the other (FAULTS S01, S04)."""
    working = _working(profile)
    overlap, possible = profile.overlap_share, profile.possible_overlap_share
    if len(working) < 2 or overlap is None or not possible or _too_little_known(profile):
        return None
    if overlap >= _LITTLE_OVERLAP * possible:
        return None
    eager = sum(each.eager_ops for each in working) > sum(each.ops for each in working) / 2
    if profile.host.reads >= profile.calls and eager:
        what = (
            f"Python reads {profile.host.reads / profile.calls:.0f} value(s) per call, and waits for each: start the "
            "work of all devices before you call numpy(), float() or print()"
        )
    elif eager:
        what = "one Python thread starts op after op and waits for each: put all towers into one tf.function"
    elif profile.host.reads >= profile.calls:
        what = (
            f"Python reads {profile.host.reads / profile.calls:.0f} value(s) per call and waits between the towers: "
            "start all of them before you read any, or put all towers into one tf.function"
        )
    else:
        what = (
            "each tower waits for the one before: look for tf.control_dependencies, a variable that all of them "
            "assign, or an input that is the output of the tower before; or they are called one after the other: put "
            "all towers into one tf.function"
        )
    return Cause(
        "towers-serialised",
        f"Towers serialised: {len(working)} devices compute, but two at once for {overlap:.0%} of the time, where "
        f"{possible:.0%} is possible; {what}.",
    )


def host_copies(profile: Profile) -> Cause | None:
    """Copies between devices, and making tensors of Python's values, take much of the time (FAULTS S05)."""
    if not profile.wall_ns:
        return None
    worst = max(profile.times, key=lambda each: each.transfer_ns, default=None)
    transfer = (worst.transfer_ns if worst is not None else 0) / profile.wall_ns
    convert = profile.host.convert_ns / profile.wall_ns
    if max(transfer, convert) < _MUCH_TRANSFER:
        return None
    if worst is None or convert > transfer:
        figure = f"making tensors of Python and NumPy values takes {convert:.0%} of the time"
    else:
        figure = f"copies to {_short(worst)} take {transfer:.0%} of the time"
    return Cause(
        "host-copies",
        f"Host copies: {figure}; keep tensors on the device that uses them, make constants once and not in each call, "
        "and read results once at the end.",
    )


def retracing(profile: Profile) -> Cause | None:
    """Functions are traced in most calls, although they were warm (FAULTS S02)."""
    host = profile.host
    if not profile.calls or host.calls_traced < 1 or host.calls_traced < _MOST_CALLS * profile.calls:
        return None
    return Cause(
        "retracing",
        f"Retracing: {', '.join(host.traced)} was traced anew in {host.calls_traced} of {profile.calls} calls, which "
        f"took {host.tracing_ns / profile.wall_ns:.0%} of the time; make a tf.function once, outside of the call, and "
        "give it tensors instead of Python numbers, of the same shape each time or with an input_signature.",
    )


def input_bound(profile: Profile) -> Cause | None:
    """The calls wait for their data."""
    if not profile.wall_ns:
        return None
    share = max(profile.host.input_ns, *(each.input_ns for each in profile.times), 0) / profile.wall_ns
    if share < _MUCH_INPUT:
        return None
    return Cause(
        "input-bound",
        f"Input-bound: {share:.0%} of the time is spent waiting for the next batch; add prefetch(tf.data.AUTOTUNE), "
        "map(…, num_parallel_calls=tf.data.AUTOTUNE) and cache(), or prepare the data once beforehand.",
    )


def too_little_work(profile: Profile) -> Cause | None:
    """No device is busy most of the time: Python and starting ops take longer than the ops (FAULTS S01)."""
    host = profile.host
    if not profile.wall_ns or _too_little_known(profile):
        return None
    # What has a sentence of its own is no overhead.
    alone_ns = host.alone_ns - min(host.alone_ns, host.tracing_ns + host.input_ns + host.convert_ns)
    share = alone_ns / profile.wall_ns
    ops = sum(each.ops for each in profile.times)
    if share < _MUCH_HOST or not ops:
        return None
    each_us = sum(each.busy_ns for each in profile.times) / ops / 1e3
    return Cause(
        "too-little-work",
        f"Too little work per call: no device is busy for {share:.0%} of the time, in which Python runs and ops are "
        f"started; {ops / profile.calls:.0f} ops per call take {each_us:.0f} µs each; give each call a larger batch, "
        "and put the whole step into one tf.function.",
    )


_RULES: tuple[Callable[[Profile], Cause | None], ...] = (
    retracing,
    input_bound,
    backward_on_one_device,
    towers_serialised,
    host_copies,
    too_little_work,
)


def _working(profile: Profile) -> list[DeviceTimes]:
    """The devices that were asked for and have a real part of the computing."""
    most = max((each.compute_ns for each in profile.listed), default=0)
    return [each for each in profile.listed if each.compute_ns > 0 and each.compute_ns >= _TAKES_PART * most]


def _too_little_known(profile: Profile) -> bool:
    known = sum(each.busy_ns for each in profile.times)
    return profile.unattributed_ns > _UNATTRIBUTED * (known + profile.unattributed_ns)


def _short(times: DeviceTimes) -> str:
    return DeviceName.parse(times.device).short
