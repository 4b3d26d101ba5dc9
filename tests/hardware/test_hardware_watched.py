"""Sensors and links under load: what is wrong, and what only looks so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.hardware.machine import Reading
from harness.hardware.profile import profile_for
from harness.hardware.sustained_load.judge import REPAIRS, judge_sensors, settings_of, silent_sensors
from harness.hardware.sustained_load.measure import Load
from harness.records import Card, Verdict

CARD = Card("GPU:3", "a card", "/job:localhost/replica:0/task:0/device:GPU:3", pci="0000:3B:00.0")
IDLE = Reading(
    0.0, 210.0, 1980.0, 35.0, 87.0, 70.0, 700.0, 0.0, ("GpuIdle",), 3, 0, 1, 1, 5, 16, 16, 7, 18, 18, 26.6, 0, xid=()
)
BUSY = replace(
    IDLE, at_s=1.0, clock_mhz=1900.0, temperature_c=60.0, power_w=650.0, throttle_reasons=("SwPowerCap",),
    pcie_generation=5,
)  # fmt: skip


def load(before: Reading, *during: Reading) -> Load:
    return Load(CARD, (), before, list(during))


def watched(before: dict[str, Any] | None = None, count: int = 10, **during: Any) -> Load:
    return load(replace(IDLE, **(before or {})), *[replace(BUSY, **during)] * count)


def said(each: Load, *others: Load) -> list[tuple[str, str, Verdict]]:
    return [(one.kind, one.where, one.severity) for one in judge_sensors(each, [each, *others])]


def test_a_card_at_its_power_limit_with_old_corrected_errors_and_replays_is_well() -> None:
    assert said(watched()) == []
    assert said(load(Reading(0.0), Reading(1.0))) == [], "no sensors, nothing to say"


def test_the_link_and_the_power_limit_are_figures_beside_what_card_and_slot_can_do() -> None:
    made = load(IDLE, replace(BUSY, pcie_width=4, pcie_generation=1), replace(BUSY, pcie_width=4))
    figures, findings = settings_of(made, None)
    assert [(each.name, each.value, each.unit, each.device, each.expected) for each in figures] == [
        ("pcie width", 4, "lanes", "GPU:3", 16),
        ("pcie generation", 5, "", "GPU:3", 5),
        ("nvlink rate", 26.6, "GB/s", "GPU:3", None),
        ("power limit", 700.0, "W", "GPU:3", None),
    ]
    assert findings == []
    assert settings_of(load(Reading(0.0), Reading(1.0)), profile_for("NVIDIA H100 80GB HBM3")) == ([], [])


@pytest.mark.parametrize(
    ("during", "name"),
    [
        ({}, None),
        ({"power_limit_w": 500.0}, "power limit"),
        ({"nvlink_gbs": 12.5}, "nvlink rate"),
        ({"pcie_width": 8, "pcie_width_max": 8}, "pcie width"),
        ({"pcie_generation": 3, "pcie_generation_max": 3}, "pcie generation"),
        ({"pcie_generation": 4, "pcie_generation_max": 4}, None),
        ({"pcie_width": 8}, None),
    ],
    ids=[
        "as shipped",
        "less power",
        "slow NVLinks",
        "narrow slot",
        "old slot",
        "the generation before",
        "a finding of its own",
    ],
)
def test_less_than_a_profile_says_is_a_warning_if_the_slot_allows_no_more(
    during: dict[str, Any], name: str | None
) -> None:
    figures, findings = settings_of(watched(**during), profile_for("NVIDIA H100 80GB HBM3"))
    assert [(each.subject, each.severity) for each in findings] == ([(name, Verdict.WARN)] if name else [])
    assert all(each.expected_from for each in figures)


def test_an_idle_link_that_reports_a_low_speed_is_well() -> None:
    assert said(load(IDLE, replace(BUSY, pcie_generation=1), BUSY)) == []


@pytest.mark.parametrize(
    ("during", "kind", "where", "severity"),
    [
        ({"pcie_width": 4}, "link", "PCIe width under load", Verdict.FAIL),
        ({"pcie_generation": 3}, "link", "PCIe generation under load", Verdict.FAIL),
        ({"pcie_replays": 9}, "link", "PCIe replays under load", Verdict.WARN),
        ({"pcie_replays": 99}, "link", "PCIe replays under load", Verdict.FAIL),
        ({"nvlink_errors": 2}, "link", "NVLink replays under load", Verdict.WARN),
        ({"nvlink_errors": 40}, "link", "NVLink replays under load", Verdict.FAIL),
        ({"xid": (31,)}, "sensor", "Xid under load", Verdict.WARN),
        ({"ecc_corrected": 5}, "memory", "ECC under load", Verdict.WARN),
        ({"ecc_corrected": 50}, "memory", "ECC under load", Verdict.FAIL),
        ({"ecc_uncorrected": 1}, "memory", "ECC under load", Verdict.FAIL),
        ({"remapped_rows": 2}, "memory", "ECC under load", Verdict.FAIL),
        ({"throttle_reasons": ("HwThermalSlowdown",)}, "sensor", "throttling under load", Verdict.FAIL),
        ({"throttle_reasons": ("sw_thermal_slowdown",)}, "sensor", "throttling under load", Verdict.FAIL),
        ({"throttle_reasons": ("HwPowerBrakeSlowdown",)}, "sensor", "throttling under load", Verdict.FAIL),
        ({"xid": (79,)}, "sensor", "Xid under load", Verdict.FAIL),
    ],
)
def test_what_is_wrong_under_load_is_named(during: dict[str, Any], kind: str, where: str, severity: Verdict) -> None:
    made = watched(**during)
    assert said(made) == [(kind, where, severity)]
    (found,) = judge_sensors(made)
    assert found.device == CARD.device
    assert found.message.startswith("GPU:3 (PCI 0000:3B:00.0) ")
    assert found.next_step
    assert found.lasting is (where == "Xid under load" and severity is Verdict.FAIL), "a second pass does not undo it"


def test_heat_for_a_moment_is_a_warning() -> None:
    hot = replace(BUSY, throttle_reasons=("SwThermalSlowdown",))
    assert said(load(IDLE, hot, *[BUSY] * 9)) == [("sensor", "throttling under load", Verdict.WARN)]


def test_what_was_there_before_is_told_as_such() -> None:
    # The driver reports what comes after it was asked to: no error is older than the run.
    assert said(watched({"xid": (48,)}, xid=(48,))) == [("sensor", "Xid earlier in this run", Verdict.FAIL)]
    assert said(watched({"xid": (31, 45)}, xid=(31, 45))) == [], "a program of earlier failed, and no card"
    assert said(watched({"xid": (48,)}, xid=(48, 79))) == [
        ("sensor", "Xid under load", Verdict.FAIL),
        ("sensor", "Xid earlier in this run", Verdict.FAIL),
    ]
    assert said(watched({"ecc_uncorrected": 2}, ecc_uncorrected=2)) == [("memory", "ECC before the run", Verdict.WARN)]


def test_nvlinks_are_held_against_the_other_cards() -> None:
    down, well = watched(nvlinks_active=17), watched()
    assert said(down, well) == [("link", "NVLinks under load", Verdict.FAIL)]
    assert said(well, down) == []
    assert said(down, watched(nvlinks_active=17)) == [], "a board that connects 17 of 18"


def test_the_sensors_that_no_card_has_are_told() -> None:
    assert silent_sensors([watched({"power_w": None}, power_w=None)]) == ("power_w",)
    assert silent_sensors([watched(), watched({"power_w": None}, power_w=None)]) == ()
    assert len(silent_sensors([load(Reading(0.0), Reading(1.0))])) == len(Reading.__dataclass_fields__) - 1 - len(
        REPAIRS
    )


def test_what_a_link_can_carry() -> None:
    assert BUSY.pcie_peak_gbs == pytest.approx(63.0, abs=0.1), "PCIe 5.0 x16"
    assert Reading(0.0).pcie_peak_gbs is None
