"""Times per device, overlap and idle shares, from spans made by hand."""

from __future__ import annotations

import pytest

from harness.speed.timeline.profiling import account, possible_overlap
from harness.speed.timeline.spans import Kind, Span
from profiles import CPU

ZERO, ONE, OTHER = CPU.format(0), CPU.format(1), CPU.format(2)


def span(device: str | None, begin: int, end: int, kind: Kind = "compute", eager: bool = False) -> Span:
    return Span(device, kind, "op", begin, end, eager)


def test_what_a_device_does_and_waits_for_adds_up_to_the_wall_time() -> None:
    spans = [span(ZERO, 0, 40), span(ZERO, 30, 50, "transfer"), span(ONE, 20, 60), span(ONE, 60, 65, "input")]
    sums = account(spans, [(0, 100)], [ZERO, ONE])
    zero, one = sums.times
    assert (zero.compute_ns, zero.transfer_ns, zero.busy_ns) == (40, 20, 50)
    assert (zero.waiting_ns, zero.host_ns, zero.idle_share) == (15, 35, 0.5)
    assert (one.compute_ns, one.input_ns, one.waiting_ns, one.host_ns) == (40, 5, 20, 35)
    for each in sums.times:
        assert each.busy_ns + each.host_ns + each.waiting_ns == sums.wall_ns == 100
    assert sums.alone_ns == 35


def test_overlap_is_when_two_listed_devices_compute_at_once() -> None:
    spans = [span(ZERO, 0, 40), span(ONE, 20, 60), span(ONE, 80, 90, "transfer"), span(ZERO, 80, 90)]
    sums = account(spans, [(0, 100)], [ZERO, ONE])
    assert sums.overlap_share == 0.2
    assert sums.possible_overlap_share == 0.4


def test_one_device_and_clocks_that_differ_have_no_overlap() -> None:
    assert account([span(ZERO, 0, 9)], [(0, 10)], [ZERO]).overlap_share is None
    assert account([span(ZERO, 0, 9)], [(0, 10)], [ZERO, ONE], one_clock=False).overlap_share is None


def test_only_what_lies_inside_a_call_counts() -> None:
    sums = account([span(ZERO, 0, 100)], [(10, 20), (50, 60)], [ZERO])
    assert (sums.wall_ns, sums.times[0].compute_ns) == (20, 20)
    assert account([span(ZERO, 0, 5)], [(10, 20)], [ZERO]).times[0].ops == 0


def test_a_call_in_which_an_op_waited_for_a_core_is_not_the_typical_one() -> None:
    spans = [span(ZERO, begin, begin + size) for begin, size in ((0, 10), (100, 90), (200, 12))]
    (times,) = account(spans, [(0, 50), (100, 190), (200, 250)], [ZERO]).times
    assert (times.compute_ns, times.typical_compute_ns, times.least_compute_ns) == (112, 36, 30)
    assert account([], [], [ZERO]).times[0].typical_compute_ns == 0


def test_a_device_that_was_not_asked_for_has_a_row_of_its_own_and_no_part_in_the_overlap() -> None:
    sums = account([span(ZERO, 0, 50), span(OTHER, 0, 50)], [(0, 100)], [ZERO, ONE])
    assert [(each.device, each.listed) for each in sums.times] == [(ZERO, True), (ONE, True), (OTHER, False)]
    assert sums.overlap_share == 0.0


def test_a_span_without_a_device_is_in_no_devices_times() -> None:
    sums = account([span(None, 0, 30), span(ZERO, 50, 60)], [(0, 100)], [ZERO, ONE])
    assert (sums.unattributed_ns, sums.unattributed_ops) == (30, 1)
    assert [each.compute_ns for each in sums.times] == [10, 0]
    assert sums.alone_ns == 60, "an op that runs somewhere is not the host's time"


def test_roles_and_eager_ops_are_counted_by_device() -> None:
    roles = {ZERO: {"forward": 3, "gradient": 2}}
    zero, one = account([span(ZERO, 0, 5, eager=True)], [(0, 10)], [ZERO, ONE], roles).times
    assert (zero.eager_ops, zero.forward_ops, zero.gradient_ops) == (1, 3, 2)
    assert (one.ops, one.forward_ops, one.gradient_ops) == (0, 0, 0)


@pytest.mark.parametrize(
    ("lengths", "possible"), [((), 0), ((50,), 0), ((50, 50), 50), ((80, 20), 20), ((30, 30, 30), 45)]
)
def test_the_overlap_that_is_possible(lengths: tuple[int, ...], possible: float) -> None:
    assert possible_overlap([[(0, each)] for each in lengths]) == possible
