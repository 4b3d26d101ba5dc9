"""Prints a profile: a table by device, the overlap, the causes of no gain, and the memory. Reads ``profile.json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.devices.name import DeviceName
from harness.plural import plural
from harness.report.memory import print_memory
from harness.report.storage import load_versioned
from harness.report.terminal import make_table, print_line
from harness.speed.timeline.causes import too_little_known
from harness.speed.timeline.record import PROFILE_SCHEMA_VERSION, DeviceTimes, Profile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Name of the record in the report folder.
PROFILE_FILE = "profile.json"
#: What a device spends its time on, as in :class:`DeviceTimes`.
SPENT = ("compute", "transfer", "collective", "input", "host", "waiting")


def load_profile(path: Path) -> Profile:
    """Read the record at ``path``, which may be the report folder.

    Raise InvalidRecord if there is no such file, or it is not a record of this version or an earlier one.
    """
    return load_versioned(path / PROFILE_FILE if path.is_dir() else path, Profile, PROFILE_SCHEMA_VERSION)


def print_profile(console: Console, profile: Profile) -> None:
    """Print the table, the totals, what is unknown, and the causes."""
    console.print(_table(profile))
    for line in summary(profile):
        print_line(console, line)
    if profile.memory:
        print_memory(console, profile.memory)
    if profile.memory_unknown:
        print_line(console, profile.memory_unknown)


def summary(profile: Profile) -> list[str]:
    """Write what the table leaves out, a line each."""
    host, wall = profile.host, profile.wall_ns
    each_ms, reads = wall / profile.calls / 1e6, host.reads / profile.calls
    lines = [
        f"{profile.target} on {profile.spec}: {plural(profile.calls, 'call')}, {each_ms:.2f} ms each",
        f"overlap: {_share_text(profile)}",
        (
            f"host: all devices are idle for {_share(host.alone_ns, wall)} of the time; converting Python values to "
            f"tensors takes {_share(host.convert_ns, wall)}, waiting for batches {_share(host.input_ns, wall)}, "
            f"tracing {_share(host.tracing_ns, wall)}; {reads:g} value{'' if reads == 1 else 's'} read by Python per "
            "call"
        ),
    ]
    if "software GPU" in profile.reason:
        lines.append(f"devices: {profile.reason}")
    lines += [f"UNKNOWN: {each}" for each in profile.unknown]
    none = "None of the usual causes of a missing speedup was found."
    if too_little_known(profile):
        none = "Causes of a missing speedup: UNKNOWN, because the device of too much of the time is unknown."
    lines += [f"- {cause.sentence}" for cause in profile.causes] or [none]
    return lines


def _share_text(profile: Profile) -> str:
    if profile.overlap_share is None or profile.possible_overlap_share is None or too_little_known(profile):
        return "one device: nothing to overlap" if len(profile.devices) == 1 else "UNKNOWN"
    return (
        f"two or more devices compute at once {profile.overlap_share:.1%} of the time; this distribution of the work "
        f"allows {profile.possible_overlap_share:.1%}"
    )


def _table(profile: Profile) -> Table:
    names = (*SPENT, "idle", "ops", "forward", "gradient")
    rows = [cells(times) for times in profile.times]
    if profile.unattributed_ops:
        unknown_ms = f"{profile.unattributed_ns / 1e6:.2f}"
        rows.append(["UNKNOWN", unknown_ms, *[""] * 6, str(profile.unattributed_ops), "", ""])
    return make_table(("device", *names), rows, right=names, title="ms, sum of all calls")


def cells(times: DeviceTimes) -> list[str]:
    """Write a row of the table: the device, and what it spends its time on, in ms."""
    name = DeviceName.parse(times.device).short
    # Ops ran here, and when is unknown: nothing is known of the rest of the time either.
    unknown = not times.ops and bool(times.forward_ops or times.gradient_ops)
    spent = [f"{getattr(times, f'{each}_ns') / 1e6:.2f}" for each in SPENT]
    return [
        name if times.listed else f"({name})",
        *(["UNKNOWN", *[""] * (len(SPENT) - 1)] if unknown else spent),
        "" if unknown else f"{times.idle_share:.1%}",
        "" if unknown else str(times.ops),
        str(times.forward_ops),
        str(times.gradient_ops),
    ]


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"
