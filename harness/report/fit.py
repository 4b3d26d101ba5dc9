"""Prints whether a step fits into the memory of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.plural import plural
from harness.report.terminal import print_line
from harness.speed.memory.sizes import size_text

if TYPE_CHECKING:
    from rich.console import Console

    from harness.advice.peaks import Fit

_BEYOND = "Beyond that, a real GPU needs memory for the CUDA context, the workspaces of cuDNN and the buffers of NCCL."


def print_fit(console: Console, fit: Fit) -> None:
    """Print the peak, what it consists of, the verdict, and what would make it fit."""
    least, most = fit.interval
    how = "measured on a software GPU" if fit.measured else f"predicted from {_listed(fit)} rows"
    shared = "" if fit.devices == 1 else f", {fit.rows_of_a_device:,} on each of {fit.devices:,} devices"
    print_line(console, f"{fit.target}: {fit.step}, {plural(fit.rows, 'row')}{shared}")
    print_line(console, f"  peak of a device  {size_text(least)} to {size_text(most)}, {how}")
    print_line(console, f"  between steps     {size_text(fit.held_bytes)}: weights, slots, the batch")
    if len(fit.peaks) > 1:
        print_line(console, f"  each row          {size_text(fit.line.row_bytes)}")
    if fit.building_bytes > fit.step_bytes:
        print_line(
            console,
            f"  to build it       {size_text(fit.building_bytes)}: more than a step, as initial values are computed",
        )
    if fit.memory_bytes is None:
        return
    sign = {"fits": "PASS", "does not fit": "FAIL"}.get(fit.verdict, "UNKNOWN")
    print_line(console, f"{sign}: {fit.verdict}: the device has {size_text(fit.memory_bytes)}")
    if fit.verdict != "fits" and len(fit.peaks) > 1:
        for word, much in fit.remedies():
            print_line(console, f"  {word + ':':<15} {much}")
    print_line(console, _BEYOND)


def _listed(fit: Fit) -> str:
    *first, last = [f"{peak.rows:,}" for peak in fit.peaks]
    return f"{', '.join(first)} and {last}" if first else last
