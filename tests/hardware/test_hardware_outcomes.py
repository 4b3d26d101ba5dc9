"""What hardware checks say where little can be told: no machine, no sensors, no room, nobody who knows what is free."""

from __future__ import annotations

from dataclasses import replace

import pytest
from described_machines import H100, text
from simulated import DescribedMachine, devices, read_description

from harness.checking.check import CheckContext, Level
from harness.checking.execute import execute
from harness.hardware import profile
from harness.hardware.arithmetic import check as arithmetic
from harness.hardware.card_profile import CardProfile, Expected
from harness.hardware.cards import check as cards
from harness.hardware.copies import check as copies, measure
from harness.hardware.corruption import check as corruption
from harness.hardware.memory import check as memory
from harness.hardware.sustained_load import check as sustained_load
from harness.records import Verdict

pytest_plugins = ["little_data"]
pytestmark = pytest.mark.usefixtures("little_data")

CHECKS = (cards.CHECK, memory.CHECK, copies.CHECK, corruption.CHECK, sustained_load.CHECK)
L4 = "NVIDIA L4"


def context(count: int = 2, model: str = L4, *faults: str, level: Level = Level.QUICK, **lines: str) -> CheckContext:
    made = read_description("test.toml", text(count, model, *faults, **lines))
    return CheckContext(devices(made), level=level, machine=DescribedMachine(made))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_without_a_machine_nothing_is_proven(check: object) -> None:
    given = context()
    result = execute(check, CheckContext(given.devices))  # type: ignore[arg-type]
    assert result.verdict is Verdict.UNKNOWN
    assert "no hardware was exercised" in result.reason


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_card_without_any_room_fails_and_is_named(check: object) -> None:
    result = execute(check, context(2, L4, "stuck-allocation card = 1, share = 1.0"))  # type: ignore[arg-type]
    assert result.verdict is Verdict.FAIL
    assert [finding.kind for finding in result.findings] == ["memory"]
    assert result.findings[0].device == "/job:localhost/replica:0/task:0/device:GPU:1"


def test_memory_of_which_nobody_knows_how_much_is_free_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DescribedMachine, "free_bytes", lambda self, card: None)
    result = execute(memory.CHECK, context())
    assert result.verdict is Verdict.UNKNOWN
    assert "GPU:0: free memory unknown" in result.reason


def test_where_memory_in_use_is_not_known_nothing_is_said_to_be_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no leak in 200 steps" in execute(memory.CHECK, context()).reason
    monkeypatch.setattr(DescribedMachine, "used_bytes", lambda self, card: None)
    result = execute(memory.CHECK, context())
    assert "not all devices were checked for leaks" in result.reason
    assert "no leak" not in result.reason


def test_with_one_card_alone_nothing_is_said_of_its_like(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, two = execute(arithmetic.CHECK, context(1)), execute(arithmetic.CHECK, context(2))
    assert two.reason.endswith("bit-identical when repeated and across devices of one model")
    assert alone.reason.endswith("bit-identical when repeated; no two devices of one model to compare")
    monkeypatch.setattr(profile, "profile_of", lambda card: None)
    for count, whence in ((1, None), (2, "the faster of 2 GPUs of this model")):
        outcome = sustained_load.run(context(count))
        figures = [figure for figure in outcome.figures if figure.name.startswith("sustained matmul")]
        assert [(figure.expected_from, figure.expected is None) for figure in figures] == [
            (whence, whence is None)
        ] * count


def test_sensors_that_are_not_there_are_told_and_the_rates_are_judged() -> None:
    well = execute(sustained_load.CHECK, context(2, cards="sensors = false"))
    assert well.verdict is Verdict.PASS
    assert "no sensors on these devices: only the rates were judged" in well.reason
    assert {series.name for series in well.series} == {"rate"}
    slow = execute(sustained_load.CHECK, context(3, L4, "slow card = 2", cards="sensors = false"))
    assert slow.verdict is Verdict.FAIL
    some = execute(sustained_load.CHECK, context(2, cards='without = ["xid"]'))
    assert "xid" in some.scope[0]


def test_series_and_figures_are_kept_for_every_card() -> None:
    result = execute(sustained_load.CHECK, context(2, H100, level=Level.STANDARD))
    assert {(series.name, series.unit, series.device) for series in result.series} == {
        (name, unit, f"GPU:{index}")
        for index in range(2)
        for name, unit in (("rate", "GFLOP/s"), ("temperature", "C"), ("clock", "MHz"), ("power", "W"))
    }
    for series in result.series:
        assert len(series.at_s) == len(series.values) > 10
        assert list(series.at_s) == sorted(series.at_s)
        assert series.at_s[-1] <= 25
    assert {figure.device for figure in result.figures} == {"GPU:0", "GPU:1"}
    assert all(figure.expected_from for figure in result.figures)


def test_copies_give_a_matrix_of_bandwidths_and_latencies() -> None:
    result = execute(copies.CHECK, context(3, H100))
    of_largest = [figure for figure in result.figures if figure.size_bytes == copies.SIZES[Level.QUICK][-1]]
    largest = {(figure.name, figure.device, figure.peer) for figure in of_largest}
    labels = [f"GPU:{index}" for index in range(3)]
    assert {(d, p) for name, d, p in largest if name == measure.ACROSS} == {
        (one, other) for one in labels for other in labels if one != other
    }
    assert {p for name, d, p in largest if name == measure.TO_CARD and d == "host"} == set(labels)
    assert {d for name, d, p in largest if name == measure.TO_HOST and p == "host"} == set(labels)
    assert len([name for name, _, _ in largest if name == measure.BOTH]) == 3
    latencies = [figure for figure in result.figures if figure.name.startswith("latency")]
    assert {figure.unit for figure in latencies} == {"us"}
    assert len(latencies) == 6 + 2 * 3
    both = [figure.value for figure in of_largest if figure.name == measure.BOTH]
    one = [figure.value for figure in of_largest if figure.name == measure.ACROSS]
    assert min(both) > 1.5 * max(one), "both ways at once carry about twice as much"


def _profile(name: str, value: float, unit: str) -> CardProfile:
    return CardProfile("a profile", (L4,), (Expected(name, value, unit, "a data sheet", "2024-01-01"),))


@pytest.mark.parametrize("value", [26.0, 90.0, 12.0])
def test_copies_with_the_host_are_compared_with_the_peak_of_their_link(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are pageable, and at half the rate of a sound link: reported beside its peak, and judged by its state."""
    monkeypatch.setattr(profile, "profile_of", lambda card: _profile(measure.TO_CARD, value, "GB/s"))
    outcome = copies.run(context(2))
    assert outcome.verdict is Verdict.PASS
    found = [figure for figure in outcome.figures if figure.name == measure.TO_CARD and figure.expected]
    assert {figure.expected_from for figure in found} == {"peak of the PCIe link"}


@pytest.mark.parametrize(("tf32", "figure"), [(True, "matmul tfloat32"), (False, "matmul float32")])
def test_a_profile_judges_the_rate_under_load_of_what_tensorflow_may_use(
    tf32: bool, figure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = context(1)
    software = replace(given.machine.software(), tf32=tf32)  # type: ignore[union-attr]
    monkeypatch.setattr(DescribedMachine, "software", lambda self: software)
    assert sustained_load.run(given).verdict is Verdict.PASS, "the shipped profile is fine with it"
    monkeypatch.setattr(profile, "profile_of", lambda card: _profile(figure, 10e3, "GFLOP/s"))
    outcome = sustained_load.run(given)
    assert outcome.verdict is Verdict.FAIL
    assert "impossibly fast" in outcome.reason


def test_a_leak_is_looked_for_in_as_many_steps_as_are_said() -> None:
    assert memory.STEPS == {Level.QUICK: 200, Level.STANDARD: 1_000, Level.DEEP: 1_000}
    result = execute(memory.CHECK, context(1))
    assert result.exercised.ops >= 200
    assert result.scope[0].startswith("GPU:0: ")
    assert "(91%)" in result.scope[0]
