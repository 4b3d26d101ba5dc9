"""Rules on a profile for the usual causes of no gain: the cause, a figure, and what to do.

The thresholds decide when a cause is worth a sentence; the profile has all figures.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.devices.name import DeviceName
from harness.plural import plural
from harness.speed.timeline.record import Cause, DeviceTimes, Profile

#: A device takes part from this share of the busiest one's compute time on.
_TAKES_PART = 0.1
#: Below this share of the possible overlap, devices take turns.
_LITTLE_OVERLAP = 0.1
#: Below this share of independent pairs of ops, devices have to take turns.
_INDEPENDENT = 0.1
#: Shares of the wall time from which transfers, input and host time count as causes. Servers on loopback wait for
#: tensors up to 28 % of the time without being slowed down by it.
_MUCH_TRANSFER = 0.35
_MUCH_INPUT = 0.3
_MUCH_HOST = 0.5
#: Share of calls that trace again.
_MOST_CALLS = 0.5
#: From this multiple of the mean compute time on, a device has more to do than its share; and from this share of the
#: wall time on, evening it out is worth a sentence. Towers that are alike differ by up to 1.4 where they share busy
#: cores, which GPUs and ``cores:N`` do not.
_MORE, _MORE_APART = 1.5, 1.2
_MUCH_WAITING = 0.1
#: The least share of the wall time of which a sentence says that it would be saved. Towers that save less than that
#: side by side are no cause.
_WORTH_SAYING = 0.05
#: From this multiple on, two devices run different numbers of ops.
_MORE_OPS = 1.5


def causes_of(profile: Profile) -> tuple[Cause, ...]:
    """List the causes that a profile shows, the one that costs most first; of equal ones the surest."""
    found = [cause for rule in _RULES if (cause := rule(profile)) is not None]
    return tuple(sorted(found, key=lambda cause: float("-inf") if cause.saved_ns is None else -cause.saved_ns))


def backward_on_one_device(profile: Profile) -> Cause | None:
    """Find forward ops on several devices with all gradient ops on one (FAULTS P01)."""
    forward = [each for each in profile.listed if each.forward_ops]
    without = [each for each in forward if not each.gradient_ops]
    there = [each for each in profile.times if each.gradient_ops]
    if len(forward) < 2 or not without or len(there) != 1:
        return None
    took = [_typical_ns(each) for each in forward]
    saved_ns = None if profile.too_little_known else max(took) - sum(took) / len(took)
    saved = "" if saved_ns is None else _saved(profile, saved_ns)
    return Cause(
        "backward-on-one-device",
        f"Backward on one device: all {there[0].gradient_ops:,} gradient ops of a call ran on {_short(there[0])}, "
        f"while forward ops ran on {len(forward)} devices.{saved} A tape runs backward ops where gradient() is called. "
        "Wrap the step in harness.colocate_gradients(), use harness.make_parallel, or take each tower's gradient in "
        "its device scope.",
        saved_ns,
    )


def towers_serialised(profile: Profile) -> Cause | None:
    """Find devices that compute one after the other (FAULTS S01, S04)."""
    working = _working(profile)
    overlap, possible = profile.overlap_share, profile.possible_overlap_share
    if len(working) < 2 or overlap is None or not possible or profile.too_little_known:
        return None
    if overlap >= _LITTLE_OVERLAP * possible or _dependent(profile):
        return None
    eager = sum(each.eager_ops for each in working) > sum(each.ops for each in working) / 2
    if profile.host.reads >= profile.calls:
        what = f"Python reads {plural(round(profile.host.reads / profile.calls), 'value')} per call and waits " + (
            "for each. Start the work of all devices before numpy(), float() or print()"
            if eager
            else "between the towers. Start all towers before you read a value, or put them into one tf.function"
        )
    elif eager:
        what = "one Python thread starts the ops one by one and waits for each. Put all towers into one tf.function"
    elif profile.apart:
        what = (
            "nothing in the program makes one wait for another. Look what else uses the cores or the GPUs of this "
            "machine, and whether the work of a call is too small; profile it again while the machine is idle"
        )
    else:
        what = (
            "each tower waits for the previous one. Look for tf.control_dependencies, a variable that all towers "
            "assign, or an input from the previous tower. If the towers are called one after the other, put them into "
            "one tf.function"
        )
    saved_ns = (possible - overlap) * profile.wall_ns
    if saved_ns < _WORTH_SAYING * profile.wall_ns:
        return None
    saved = _saved(profile, saved_ns, "Side by side")
    return Cause(
        "towers-serialised",
        f"Towers serialised: {len(working)} devices compute, but their work overlaps for only {overlap:.0%} of the "
        f"time ({possible:.0%} is possible): {what}.{saved}",
        saved_ns,
    )


def replicas_in_turns(profile: Profile) -> Cause | None:
    """Find eager ops of several devices that never run at once, where the time of each device is unknown."""
    forward = [each for each in profile.listed if each.forward_ops]
    overlap_ns = profile.unattributed_overlap_ns
    if len(forward) < 2 or overlap_ns is None or not profile.unattributed_ns or not profile.too_little_known:
        return None
    share = overlap_ns / profile.unattributed_ns
    if share >= _LITTLE_OVERLAP or profile.unattributed_eager_ops <= profile.unattributed_ops / 2:
        return None
    saved_ns = profile.unattributed_ns * (1 - 1 / len(forward))
    if saved_ns < _WORTH_SAYING * profile.wall_ns:
        return None
    saved = _saved(profile, saved_ns, "Side by side")
    return Cause(
        "towers-serialised",
        f"Towers serialised: forward ops ran on {len(forward)} devices, and Python started "
        f"{profile.unattributed_eager_ops:,} of the {profile.unattributed_ops:,} ops whose device is unknown. They "
        f"overlap for only {share:.0%} of their time: eager code, and a strategy's replicas in it, run one after the "
        f"other.{saved} Put the whole call into one tf.function.",
        saved_ns,
    )


def dependent_work(profile: Profile) -> Cause | None:
    """Find devices of which each needs the results of another, so that they cannot compute at once."""
    working = _working(profile)
    if len(working) < 2 or not _dependent(profile):
        return None
    saved_ns = ((profile.possible_overlap_share or 0.0) - (profile.overlap_share or 0.0)) * profile.wall_ns
    return Cause(
        "dependent-work",
        f"Dependent work: {len(working)} devices compute in turns, because each needs the results of another. "
        "Split the batch with harness.pipeline(..., microbatches=N) in a tf.function, or give the devices different "
        f"batches.{_saved(profile, saved_ns, 'Side by side')}",
        saved_ns,
    )


def uneven_work(profile: Profile) -> Cause | None:
    """Find a device that computes for longer than the others, which wait for it: a straggler, or an uneven cut."""
    working, calls = _working(profile, by_ops=True), max(1, profile.calls)
    if len(working) < 2 or not profile.wall_ns or _dependent(profile) or profile.too_little_known:
        return None
    if towers_serialised(profile) is not None or backward_on_one_device(profile) is not None:
        return None
    # Contention for cores only adds to a time, so that the least of each device compares them.
    least = [each.least_compute_ns for each in working]
    took = [(_typical_ns(each) if ns is None else ns) / calls for each, ns in zip(working, least, strict=True)]
    mean, longest = sum(took) / len(took), max(took)
    wall = profile.wall_ns / calls
    more = _MORE_APART if profile.spec.startswith(("gpu", "cores")) else _MORE
    if longest < more * mean or longest - mean < _MUCH_WAITING * wall:
        return None
    shortest = min(took)
    slow, first = (working[took.index(ns)] for ns in (longest, shortest))
    ops = [(each.forward_ops + each.gradient_ops) or each.ops for each in (slow, first)]
    if max(ops) > _MORE_OPS * max(1, min(ops)):
        what = (
            f"They run {ops[0]:,} and {ops[1]:,} ops of a call: cut the stages elsewhere, for which harness advise "
            "measures the layers"
        )
    else:
        what = (
            f"They run about as many ops: {_short(slow)} has more of the batch, or is slower. Give it less with "
            'harness.make_parallel(..., shares="auto"), which measures the rates'
        )
    saved_ns = (longest - mean) * calls
    saved = _saved(profile, saved_ns, "With even work")
    return Cause(
        "uneven-work",
        f"Uneven work: in a call {_short(slow)} computes for {longest / 1e6:,.3g} ms, {_short(first)} for "
        f"{shortest / 1e6:,.3g} ms, and waits for it.{saved} {what}.",
        saved_ns,
    )


def host_copies(profile: Profile) -> Cause | None:
    """Find much time in copies between devices, or in converting Python values (FAULTS S05)."""
    if not profile.wall_ns:
        return None
    worst = max(profile.times, key=lambda each: each.transfer_ns, default=None)
    transfer = (worst.transfer_ns if worst is not None else 0) / profile.wall_ns
    convert = profile.host.convert_ns / profile.wall_ns
    if max(transfer, convert) < _MUCH_TRANSFER:
        return None
    if worst is None or convert > transfer:
        figure = f"converting Python and NumPy values to tensors takes {convert:.0%} of the time"
    else:
        figure = f"copies to {_short(worst)} take {transfer:.0%} of the time"
    saved_ns = max(transfer, convert) * profile.wall_ns
    saved = _saved(profile, saved_ns)
    return Cause(
        "host-copies",
        f"Host copies: {figure}.{saved} Keep tensors on the device that uses them, make constants once instead of in "
        "each call, and read results once at the end.",
        saved_ns,
    )


def retracing(profile: Profile) -> Cause | None:
    """Find functions that are traced in most calls, after the warm-up (FAULTS S02)."""
    host = profile.host
    if not profile.calls or host.calls_traced < 1 or host.calls_traced < _MOST_CALLS * profile.calls:
        return None
    names = ", ".join(f"`{name}`" for name in host.traced)
    return Cause(
        "retracing",
        f"Retracing: {names} {'was' if len(host.traced) == 1 else 'were'} traced again in {host.calls_traced} of "
        f"{profile.calls} calls, and tracing took {host.tracing_ns / profile.wall_ns:.0%} of the time."
        f"{_saved(profile, host.tracing_ns)} Make each tf.function once, outside the call. Pass tensors of the same "
        "shape instead of Python numbers, or give an input_signature.",
        host.tracing_ns,
    )


def input_bound(profile: Profile) -> Cause | None:
    """Find calls that wait for their data."""
    if not profile.wall_ns:
        return None
    saved_ns = max(profile.host.input_ns, *(each.input_ns for each in profile.times), 0)
    share = saved_ns / profile.wall_ns
    if share < _MUCH_INPUT:
        return None
    return Cause(
        "input-bound",
        f"Input-bound: calls wait for the next batch {share:.0%} of the time."
        f"{_saved(profile, saved_ns)} Add prefetch(tf.data.AUTOTUNE), "
        "map(…, num_parallel_calls=tf.data.AUTOTUNE) and cache(), or prepare the data once in advance.",
        saved_ns,
    )


def too_little_work(profile: Profile) -> Cause | None:
    """Find calls in which Python and op launches take longer than the ops (FAULTS S01)."""
    host = profile.host
    if not profile.wall_ns or profile.too_little_known:
        return None
    # Causes with a sentence of their own do not count.
    alone_ns = host.alone_ns - min(host.alone_ns, host.tracing_ns + host.input_ns + host.convert_ns)
    share = alone_ns / profile.wall_ns
    ops = sum(each.ops for each in profile.times)
    if share < _MUCH_HOST or not ops:
        return None
    each_us = sum(each.busy_ns for each in profile.times) / ops / 1e3
    per_call = plural(max(1, round(ops / profile.calls)), "op")
    return Cause(
        "too-little-work",
        f"Too little work per call: for {share:.0%} of the time all devices are idle while Python runs and starts "
        f"ops; each call runs {per_call}, of {each_us:,.0f} µs on average.{_saved(profile, alone_ns)} Use larger "
        "batches, and put the whole step into one tf.function.",
        alone_ns,
    )


_RULES: tuple[Callable[[Profile], Cause | None], ...] = (
    retracing,
    input_bound,
    backward_on_one_device,
    towers_serialised,
    replicas_in_turns,
    dependent_work,
    uneven_work,
    host_copies,
    too_little_work,
)


def _saved(profile: Profile, saved_ns: float, how: str = "Without it") -> str:
    """What a call would take less without a cause that costs so much of all calls; empty where that is very little.

    It is an estimate in which nothing else changes: other causes may show once this one is gone.
    """
    calls = max(1, profile.calls)
    if saved_ns < _WORTH_SAYING * profile.wall_ns:
        return ""
    saved_ms, wall_ms = saved_ns / calls / 1e6, profile.wall_ns / calls / 1e6
    return f" {how}, a call would take about {saved_ms:,.3g} of its {wall_ms:,.3g} ms less."


def _dependent(profile: Profile) -> bool:
    return profile.independent_share is not None and profile.independent_share < _INDEPENDENT


def _working(profile: Profile, *, by_ops: bool = False) -> list[DeviceTimes]:
    """List the requested devices that do a real part of the computing: of the time, or ``by_ops`` also of the ops.

    A stage of few layers may take next to no time beside one of many.
    """
    most = max(map(_typical_ns, profile.listed), default=0)
    most_ops = max((each.forward_ops + each.gradient_ops for each in profile.listed), default=0)

    def takes_part(each: DeviceTimes) -> bool:
        ops = each.forward_ops + each.gradient_ops if by_ops else 0
        return _typical_ns(each) >= _TAKES_PART * most or (ops > 0 and ops >= _TAKES_PART * most_ops)

    return [each for each in profile.listed if _typical_ns(each) > 0 and takes_part(each)]


def _typical_ns(times: DeviceTimes) -> int:
    """The compute time of all calls, if all were like the median one."""
    return times.compute_ns if times.typical_compute_ns is None else times.typical_compute_ns


def _short(times: DeviceTimes) -> str:
    return DeviceName.parse(times.device).short
