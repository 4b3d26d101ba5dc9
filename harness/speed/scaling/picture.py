"""The scaling curve as a picture: the speedup over the number of devices, beside the ideal and the fitted law."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.speed.scaling.curve import fits_any_program, speedup_by
from harness.speed.scaling.record import ScaleRecord

#: Okabe and Ito's blue and vermilion.
_MEASURED, _LAW, _IDEAL = "#0072B2", "#D55E00", "0.6"
_STEPS = 100


def draw_curve(record: ScaleRecord, paths: Sequence[Path]) -> bool:
    """Draw the curve and write it to ``paths`` (.png, .svg …); false where there is no point to draw.

    Raise OSError if a path cannot be written.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    points = sorted(
        (point for point in record.points if point.speedup is not None and point.devices is not None),
        key=lambda point: point.devices or 0,
    )
    if not points:
        return False
    counts = [point.devices or 0 for point in points]
    values = [point.speedup or 0.0 for point in points]
    ends = [point.speedup_interval for point in points]
    below = [value - end.lower if end is not None else 0.0 for value, end in zip(values, ends, strict=True)]
    above = [end.upper - value if end is not None else 0.0 for value, end in zip(values, ends, strict=True)]
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    base, most = counts[0], max(counts[-1], counts[0] + 1)
    axes.plot([base, most], [1.0, most / base], color=_IDEAL, linestyle="--", label="ideal", zorder=1)
    if record.fit is not None:
        steps = [base + (most - base) * step / _STEPS for step in range(_STEPS + 1)]
        law = [speedup_by(record.fit, step / record.fit.base_devices) for step in steps]
        axes.plot(steps, law, color=_LAW, label=law_text(record), zorder=2)
    axes.errorbar(
        counts,
        values,
        yerr=[below, above],
        fmt="o",
        color=_MEASURED,
        capsize=4,
        label=f"measured, {record.confidence:.0%} interval",
        zorder=3,
    )
    # The interval of two rounds may be so wide that nothing else could be seen.
    axes.set_ylim(0, 1.15 * max(*values, most / base))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("devices")
    axes.set_ylabel("speedup" if record.mode == "strong" else "work per second, relative")
    kinds = sorted({point.kind or "" for point in points})
    partial = "" if record.complete else ", INTERRUPTED"
    axes.set_title(
        f"{record.target}: {record.mode} scaling on {', '.join(kinds)}{partial}", loc="left", fontsize="medium"
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    for path in paths:
        figure.savefig(path, dpi=150)
    return True


def law_text(record: ScaleRecord) -> str:
    """Describe the law and its serial fraction with its interval."""
    fit = record.fit
    if fit is None:
        return f"no fit: {record.why_no_fit}"
    if fit.interval is None:
        return f"{fit.law}: serial fraction {fit.value:.1%}"
    interval = f"({fit.interval.lower:.1%} to {fit.interval.upper:.1%})"
    if fits_any_program(fit):
        return f"{fit.law}: cannot tell the serial fraction {interval}"
    return f"{fit.law}: serial fraction {fit.value:.1%} {interval}"
