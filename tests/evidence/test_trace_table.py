from __future__ import annotations

from dataclasses import replace

from harness import DeviceName, Trace
from harness.evidence.op import Op, Transfer
from harness.evidence.table import text

CPU = [DeviceName("localhost", 0, 0, "CPU", index) for index in range(11)]
TANH = Op("Tanh", "Tanh", "Tanh", CPU[1], None, "forward")


def lines(*ops: Op, transfers: tuple[Transfer, ...] = ()) -> list[str]:
    return [" ".join(line.replace("│", " ").split()) for line in str(Trace(ops, transfers)).splitlines()]


def test_the_ops_of_each_device_are_counted_by_role_and_type() -> None:
    gradient = replace(TANH, name="g", type="TanhGrad", role="gradient")
    found = lines(TANH, replace(TANH, name="Tanh_1"), gradient, replace(TANH, name="e", type="Exp", device=CPU[2]))
    assert "4 ops on 2 devices" in found
    assert "CPU:1 forward 2 Tanh x2" in found
    assert "CPU:1 gradient 1 TanhGrad" in found
    assert "CPU:2 forward 1 Exp" in found


def test_devices_are_in_the_order_of_their_numbers() -> None:
    found = lines(replace(TANH, device=CPU[10]), replace(TANH, device=CPU[2]))
    rows = [line for line in found if "Tanh" in line]
    assert [row.split()[0] for row in rows] == ["CPU:2", "CPU:10"]


def test_a_unit_of_xla_is_marked_and_brackets_in_names_are_shown() -> None:
    found = lines(replace(TANH, unit="fn"), replace(TANH, type="[bold]Op[/bold]"))
    assert any("Tanh (XLA)" in line for line in found)
    assert any("[bold]Op[/bold]" in line for line in found)


def test_copies_are_summed_up_and_unknown_sizes_are_said() -> None:
    copy = Transfer(CPU[0], CPU[1], "x", 1000)
    back, unknown = Transfer(CPU[1], CPU[0], "y", None), replace(copy, size_bytes=None)
    assert "CPU:0 CPU:1 2 2,000" in lines(TANH, transfers=(copy, copy))
    found = lines(TANH, transfers=(copy, unknown, back))
    assert "3 transfers" in found
    assert "CPU:0 CPU:1 2 1,000 and more" in found
    assert "CPU:1 CPU:0 1 unknown" in found


def test_ops_without_evidence_are_counted_and_not_shown() -> None:
    found = lines(TANH, replace(TANH, name="gone", type="Exp", device=None, executed_type=None))
    assert not any("Exp" in line for line in found)
    assert found[-1].startswith("1 op on no known device")
    assert not any("on no known device" in line for line in lines(TANH))


def test_an_empty_trace_is_a_table_too() -> None:
    assert "0 ops on 0 devices" in lines()


def test_the_text_is_as_wide_as_asked() -> None:
    many = tuple(replace(TANH, name=str(index), type=f"Type{index}") for index in range(40))
    assert max(map(len, text(Trace(many, ()), width=60).splitlines())) <= 60
