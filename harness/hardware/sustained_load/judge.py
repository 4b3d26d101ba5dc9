"""Judges a card under load by its sensors and links: throttling, memory errors, driver errors, PCIe and NVLinks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from harness.hardware.card_profile import CardProfile
from harness.hardware.counters import judge_counters, judge_repairs
from harness.hardware.finding import amount, finding
from harness.hardware.machine import Reading
from harness.hardware.sustained_load.measure import Load
from harness.plural import plural
from harness.records import Figure, Finding, Quantity, Verdict

#: A card remaps rows or retires pages, so that it lacks some of these.
REPAIRS = ("remap_pending", "remap_failed", "retired_pages", "retired_pending", "recovery_action")
#: Throttling in a larger share of the samples than this fails.
THROTTLED_SHARE = 0.2
#: NVML's reasons that mean that a card cannot run as it should. A power cap is how a card works at its limit.
_THROTTLING = (
    (("thermal",), "heat", "look at its fans, its air flow, the room temperature and its thermal paste"),
    (("hwslowdown", "powerbrake"), "its board's slowdown signal", "look at its power cables and at the power supply"),
)
_SLOT = "move it to a wider or newer slot if there is one"
_NVLINK = "look at nvidia-smi nvlink --status and update the driver: the card's NVLinks were trained at a lower speed"
_POWER = "raise its power limit (nvidia-smi -pl) unless it was lowered on purpose"
_RESEAT = "reseat the card, or look at the BIOS setting of its slot and at its riser"


def judge_sensors(load: Load, others: Sequence[Load] = (), profile: CardProfile | None = None) -> Iterator[Finding]:
    """Yield what links and sensors show. ``others`` are all cards of the model, this one too."""
    yield from _pcie(load)
    yield from _nvlinks(load, others, profile)
    yield from _throttling(load)
    yield from judge_counters(load.card, load.readings, "under load")
    yield from judge_repairs(load.card, load.readings[-1])


def silent_sensors(loads: Sequence[Load]) -> tuple[str, ...]:
    """Return the sensors that none of the cards has, by their field in ``Reading``."""
    names = [field.name for field in fields(Reading) if field.name != "at_s" and field.name not in REPAIRS]

    def known(name: str) -> bool:
        return any(load.known(name, before=True) for load in loads)

    # Cards before the A100 retire pages, later ones remap rows.
    return tuple(name for name in names if not known(name) and not (name == "remapped_rows" and known("retired_pages")))


def settings_of(load: Load, profile: CardProfile | None) -> tuple[list[Figure], list[Finding]]:
    """Return the card's PCIe width and generation under load and its power limit, compared with its profile.

    Less than the profile says is a warning, because a board may have narrow slots and an owner may lower the power.
    What is below the card and its slot's own maximum is a finding of :func:`judge_sensors`.
    """
    figures, findings = [], []
    for name, unit, next_step, values, most in (
        ("pcie width", "lanes", _SLOT, load.known("pcie_width"), load.known("pcie_width_max")),
        ("pcie generation", "", _SLOT, load.known("pcie_generation"), load.known("pcie_generation_max")),
        ("nvlink rate", "GB/s", _NVLINK, load.known("nvlink_gbs"), []),
        ("power limit", "W", _POWER, load.known("power_limit_w"), []),
    ):
        if not values:
            continue
        # An idle link reports a low speed, so the best one under load counts.
        value, known = max(values), profile.figure(name) if profile is not None else None
        quantity = Quantity.POWER if unit == "W" else Quantity.LINK
        figure = Figure(name, value, unit, load.card.label, quantity=quantity)
        slow = known is not None and value < known.value * known.low
        if most and (value < max(most) or not slow):
            figure = _against(figure, max(most), "the most that both card and slot support")
        elif profile is not None and known is not None:
            figure = _against(figure, known.value, f"profile {profile.name} ({known.source}, {known.date})")
            if slow:
                expected = amount(known.value, unit).strip()
                findings.append(
                    finding(
                        "link" if quantity is Quantity.LINK else "sensor",
                        load.card,
                        name,
                        expected=f"{expected} ({figure.expected_from})",
                        found=amount(value, unit).strip(),
                        message=f"has a {name} of {amount(value, unit).strip()} instead of {expected}",
                        next_step=next_step,
                        severity=Verdict.WARN,
                        subject=name,
                    )
                )
        figures.append(figure)
    return figures, findings


def _against(figure: Figure, expected: float, source: str) -> Figure:
    return replace(figure, expected=expected, expected_from=source)


def _pcie(load: Load) -> Iterator[Finding]:
    for name, sensor, form, step in (
        ("width", "pcie_width", "x{}", _RESEAT),
        ("generation", "pcie_generation", "generation {}", f"{_RESEAT}; the link speed should be set to automatic"),
    ):
        best, most = max(load.known(sensor), default=None), max(load.known(f"{sensor}_max"), default=None)
        if best is not None and most is not None and best < most:
            yield finding(
                "link",
                load.card,
                f"PCIe {name} under load",
                expected=form.format(most),
                found=form.format(best),
                message=f"runs at PCIe {form.format(best)} instead of {form.format(most)} under load",
                next_step=step,
                subject=f"pcie {name}",
            )


def _nvlinks(load: Load, others: Sequence[Load], profile: CardProfile | None) -> Iterator[Finding]:
    # Some boards do not connect all links, so a card is compared with those of its model, and with its profile where
    # that says how many boards connect.
    active = min(load.known("nvlinks_active"), default=None)
    best = max((max(known) for each in others if (known := each.known("nvlinks_active"))), default=0)
    expected = profile.figure("nvlinks") if profile is not None else None
    source = "as on another card of the model"
    if profile is not None and expected is not None and expected.value > best:
        best, source = int(expected.value), f"profile {profile.name} ({expected.source}, {expected.date})"
    if active is not None and active < best:
        yield finding(
            "link",
            load.card,
            "NVLinks under load",
            expected=f"{best} active ({source})",
            found=f"{active} active",
            message=f"has {plural(active, 'active NVLink')} instead of {best} ({source})",
            next_step="look at nvidia-smi nvlink --status, reseat the card or its bridge, and check that the fabric "
            "manager runs",
        )


def _throttling(load: Load) -> Iterator[Finding]:
    known = [each for each in load.during if each.throttle_reasons is not None]
    for words, cause, step in _THROTTLING:
        throttled = [
            each
            for each in known
            if any(word in re.sub(r"[^a-z]", "", why.lower()) for why in each.throttle_reasons or () for word in words)
        ]
        if not throttled:
            continue
        share = len(throttled) / len(known)
        hottest = max(load.known("temperature_c"), default=None)
        slowest = min((each.clock_mhz for each in throttled if each.clock_mhz is not None), default=None)
        most = max(load.known("clock_max_mhz"), default=None)
        clock = f", down to {slowest:,.0f} of {most:,.0f} MHz" if slowest is not None and most is not None else ""
        warm = f" (up to {hottest:.0f} °C)" if hottest is not None else ""
        yield finding(
            "sensor",
            load.card,
            "throttling under load",
            expected="no throttling by heat or by the board",
            found=", ".join(sorted({reason for each in throttled for reason in each.throttle_reasons or ()})),
            message=f"throttles {share:.0%} of the time because of {cause}{warm}{clock}",
            next_step=step,
            severity=Verdict.FAIL if share > THROTTLED_SHARE else Verdict.WARN,
        )
        return
