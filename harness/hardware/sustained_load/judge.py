"""Judges a card under load by its sensors, links and modes, and by which of its sensors fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from harness.hardware.card import MIG, on_chip
from harness.hardware.card_profile import CardProfile
from harness.hardware.counters import judge_counters, judge_repairs
from harness.hardware.driver_errors import FABRIC, NO_PERMISSION, OF_SOFTWARE, Surroundings, of_nvml
from harness.hardware.finding import RESET, amount, finding
from harness.hardware.machine import Failure, Reading
from harness.hardware.sustained_load.clocks import judge_clocks
from harness.hardware.sustained_load.measure import Load
from harness.plural import plural
from harness.records import Card, Figure, Finding, Quantity, Verdict

#: A card remaps rows or retires pages, so that it lacks some of these.
REPAIRS = ("remap_pending", "remap_failed", "retired_pages", "retired_pending", "recovery_action", "details")
#: A power limit below this share of the board's default was lowered.
_LOWERED = 0.95
_SLOT = "move it to a wider or newer slot if there is one"
_NVLINK = "look at nvidia-smi nvlink --status and update the driver: the card's NVLinks were trained at a lower speed"
_POWER = "raise its power limit (nvidia-smi -pl) unless it was lowered on purpose"
_RESEAT = "reseat the card, or look at the BIOS setting of its slot and at its riser"


def judge_sensors(load: Load, others: Sequence[Load] = (), profile: CardProfile | None = None) -> Iterator[Finding]:
    """Yield what links and sensors show. ``others`` are all cards of the model, this one too."""
    if not on_chip(load.card, load.before):
        yield from _pcie(load)
    yield from _nvlinks(load, others, profile)
    yield from judge_clocks(load)
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
    pcie = not on_chip(load.card, load.before)
    for name, unit, next_step, values, most in (
        ("pcie width", "lanes", _SLOT, load.known("pcie_width") if pcie else [], load.known("pcie_width_max")),
        (
            "pcie generation",
            "",
            _SLOT,
            load.known("pcie_generation") if pcie else [],
            load.known("pcie_generation_max"),
        ),
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
        default = load.readings[-1].details.power_default_w if name == "power limit" else None
        if default is not None and not slow:
            if value < _LOWERED * default:
                findings.append(_below(load, figure, amount(default, unit), "the board's default", next_step))
            if known is None:
                figures.append(_against(figure, default, "the board's default"))
                continue
        if most and (value < max(most) or not slow):
            figure = _against(figure, max(most), "the most that both card and slot support")
        elif profile is not None and known is not None:
            figure = _against(figure, known.value, f"profile {profile.name} ({known.source}, {known.date})")
            if slow:
                expected = amount(known.value, unit).strip()
                findings.append(_below(load, figure, expected, str(figure.expected_from), next_step))
        figures.append(figure)
    return figures, findings


def _below(load: Load, figure: Figure, expected: str, source: str, next_step: str) -> Finding:
    value = amount(figure.value, figure.unit).strip()
    return finding(
        "link" if figure.quantity is Quantity.LINK else "sensor",
        load.card,
        figure.name,
        expected=f"{expected} ({source})",
        found=value,
        message=f"has a {figure.name} of {value} instead of {expected}",
        next_step=next_step,
        severity=Verdict.WARN,
        subject=figure.name,
    )


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


#: What a line of the scope begins with that an operator should read.
HINT = "hint: "
#: NVML's states of a fabric in which the card cannot use it.
_NOT_SET_UP = {1: "not started", 2: "in progress"}
_ECC_ON = "switch it on with nvidia-smi -e 1 and reset the card, unless it was switched off on purpose"


def judge_settings(loads: Sequence[Load]) -> tuple[list[Finding], list[str]]:
    """Return the cards without ECC beside others of their model that have it, and hints about modes."""
    found: list[Finding] = []
    hints: list[str] = []
    without_ecc: list[str] = []
    transient: list[str] = []
    for load in loads:
        details, card = load.readings[-1].details, load.card
        # Without NVLinks there is no fabric, whatever the driver says of it.
        linked = bool(load.readings[-1].nvlinks_total)
        if linked and (state := _NOT_SET_UP.get(details.fabric or 0)) is not None:
            found.append(
                finding(
                    "link",
                    card,
                    "fabric",
                    expected="completed",
                    found=state,
                    message=f"has no NVSwitch fabric: its registration is {state}",
                    next_step=FABRIC,
                    subject="fabric",
                )
            )
        alike = [other for other in loads if other.card.name == card.name and other is not load]
        if details.ecc_on is False:
            if sum(bool(other.readings[-1].details.ecc_on) for other in alike) > len(alike) / 2:
                found.append(
                    finding(
                        "mixed-cards",
                        card,
                        "ECC mode",
                        expected="on, as on the others of its model",
                        found="off",
                        message="has ECC off, unlike the others of its model: errors of its memory go unnoticed",
                        next_step=_ECC_ON,
                        severity=Verdict.WARN,
                        subject="ECC mode",
                    )
                )
            else:
                without_ecc.append(card.label)
        if details.persistent is False:
            transient.append(card.label)
    if without_ecc:
        hints.append(f"{HINT}ECC is off on {_named(without_ecc)}: errors of the memory go unnoticed; {_ECC_ON}")
    if transient:
        hints.append(
            f"{HINT}persistence mode is off on {_named(transient)}: without a program, the driver forgets its error "
            "counts and settings, and the next program starts slowly; run nvidia-persistenced, or nvidia-smi -pm 1"
        )
    return found, hints


def _named(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= 4 else plural(len(labels), "GPU")


#: NVML's error for whatever has no number of its own.
_UNKNOWN_ERROR = 999
#: Of a card that fails so many queries, more is broken than a sensor.
MANY_FAILED = 5
#: Queries that fail in fewer of the readings than this are a warning.
_OFTEN = 0.5
#: Sensors named in a message.
_NAMED = 4
_STEP = (
    f"read the kernel's log (dmesg | grep -i -e nvrm -e xid), {RESET}; if they cannot be read after that, look at "
    "its power cables and swap it with another card"
)


def judge_unread(loads: Sequence[Load], around: Surroundings) -> Iterator[Finding]:
    """Yield the cards whose queries fail, one finding for each card and error. A slice may not ask for all."""
    for load in loads:
        failed = _failed(load)
        for code in dict.fromkeys(each.code for each, _ in failed.values()):
            if code == NO_PERMISSION and load.card.part == MIG:
                continue
            sensors = {name: share for name, (each, share) in failed.items() if each.code == code}
            error = next(each for each, _ in failed.values() if each.code == code)
            others = [other for other in loads if other is not load]
            alone = bool(others) and any(not set(sensors) & set(_failed(other)) for other in others)
            yield _finding(load.card, error, sensors, around, sure=alone or len(sensors) >= MANY_FAILED)


def _failed(load: Load) -> dict[str, tuple[Failure, float]]:
    """Return the error of each query that fails, and in which share of the readings."""
    readings = load.readings
    found: dict[str, tuple[Failure, float]] = {}
    for reading in readings:
        for name, error in reading.details.failed.items():
            _, share = found.get(name, (error, 0.0))
            found[name] = error, share + 1 / len(readings)
    return found


def _finding(card: Card, error: Failure, sensors: dict[str, float], around: Surroundings, *, sure: bool) -> Finding:
    row = of_nvml(error.code or error.text, around)
    often = max(sensors.values()) >= _OFTEN
    fails = often and sure and error.code not in OF_SOFTWARE
    names = [name.replace("_", " ") for name in sensors]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    known = len(fields(Reading)) // 2
    which = "most of its sensors" if len(names) > known or names == ["all sensors"] else plural(len(names), "sensor")
    sometimes = "" if often else " now and then"
    return finding(
        "sensor",
        card,
        "sensors",
        expected="an answer, or that the card lacks the sensor (NOT_SUPPORTED)",
        found=error.text,
        message=f"does not tell {which}{sometimes} ({', '.join(names[:_NAMED])}{more}): {error.text}",
        next_step=row.step if row.code not in (0, _UNKNOWN_ERROR) else _STEP,
        severity=Verdict.FAIL if fails else Verdict.WARN,
        subject="sensors",
    )
