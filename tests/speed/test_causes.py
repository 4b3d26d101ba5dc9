"""Each cause of no gain is found where it is, and not in the same profile without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.speed.timeline.causes import causes_of
from harness.speed.timeline.record import Profile
from profiles import HOST, MS, profile, times

#: A profile with the cause, the same one without it, and what the sentence has to say.
PLANTED: dict[str, tuple[Profile, Profile, tuple[str, ...]]] = {
    "backward-on-one-device": (
        profile(times(0, gradient_ops=10), times(1, gradient_ops=0)),
        profile(times(0, gradient_ops=9), times(1, gradient_ops=1)),
        ("all 10 gradient ops", "on CPU:0", "2 devices", "make_parallel"),
    ),
    "towers-serialised": (
        profile(overlap_share=0.02, possible_overlap_share=0.45),
        profile(overlap_share=0.20, possible_overlap_share=0.45),
        (
            "2 devices",
            "2% of the time",
            "45% is possible",
            "control_dependencies",
            "Side by side, a call would take about 4.3 of its 10 ms less",
        ),
    ),
    "replicas-in-turns": (
        profile(
            unattributed_ns=60 * MS, unattributed_ops=240, unattributed_eager_ops=240, unattributed_overlap_ns=1 * MS
        ),
        profile(
            unattributed_ns=60 * MS, unattributed_ops=240, unattributed_eager_ops=240, unattributed_overlap_ns=20 * MS
        ),
        (
            "forward ops ran on 2 devices",
            "240 of the 240 ops",
            "only 2% of their time",
            "one tf.function",
            "about 3 of its 10 ms less",
        ),
    ),
    "dependent-work": (
        profile(overlap_share=0.02, possible_overlap_share=0.45, independent_share=0.0),
        profile(independent_share=0.9),
        ("2 devices compute in turns", "microbatches", "about 4.3 of its 10 ms less"),
    ),
    "uneven-work": (
        profile(times(0, compute_ns=90 * MS), times(1, compute_ns=20 * MS, waiting_ns=70 * MS)),
        profile(times(0, compute_ns=90 * MS), times(1, compute_ns=50 * MS)),
        ("CPU:0 computes for 9 ms, CPU:1 for 2 ms", "about 3.5 of its 10 ms less", 'shares="auto"'),
    ),
    "host-copies": (
        profile(times(0), times(1, transfer_ns=40 * MS)),
        profile(times(0), times(1, transfer_ns=20 * MS)),
        ("copies to CPU:1", "40%", "Keep tensors", "about 4 of its 10 ms less"),
    ),
    "retracing": (
        profile(host=replace(HOST, calls_traced=10, traced=("step",), tracing_ns=30 * MS)),
        profile(host=replace(HOST, calls_traced=1, traced=("step",), tracing_ns=3 * MS)),
        ("step", "10 of 10 calls", "30%", "input_signature", "about 3 of its 10 ms less"),
    ),
    "input-bound": (
        profile(host=replace(HOST, input_ns=60 * MS)),
        profile(host=replace(HOST, input_ns=6 * MS)),
        ("60%", "prefetch", "about 6 of its 10 ms less"),
    ),
    "too-little-work": (
        profile(host=replace(HOST, alone_ns=70 * MS)),
        profile(host=replace(HOST, alone_ns=30 * MS)),
        ("70%", "each call runs 20 ops", "larger batch", "about 7 of its 10 ms less"),
    ),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_cause_is_named_with_its_figure_and_its_clean_twin_has_none(kind: str) -> None:
    planted, clean, words = PLANTED[kind]
    (cause,) = causes_of(planted)
    assert cause.kind == {"replicas-in-turns": "towers-serialised"}.get(kind, kind)
    for word in words:
        assert word in cause.sentence
    assert causes_of(clean) == ()


def test_what_costs_most_comes_first_and_towers_that_save_next_to_nothing_are_no_cause() -> None:
    serial = profile(overlap_share=0.0, possible_overlap_share=0.4, host=replace(HOST, alone_ns=60 * MS))
    assert [cause.kind for cause in causes_of(serial)] == ["too-little-work", "towers-serialised"]
    longer = replace(serial, host=replace(HOST, input_ns=35 * MS))
    assert [cause.kind for cause in causes_of(longer)] == ["towers-serialised", "input-bound"]
    assert [cause.kind for cause in causes_of(replace(serial, possible_overlap_share=0.04))] == ["too-little-work"]


def test_a_healthy_profile_has_no_cause() -> None:
    assert causes_of(profile()) == ()


def test_towers_in_eager_code_are_told_to_use_a_function() -> None:
    eager = [times(index, eager_ops=90) for index in (0, 1)]
    (cause,) = causes_of(profile(*eager, overlap_share=0.0, possible_overlap_share=0.45))
    assert "one Python thread starts the ops one by one" in cause.sentence


def test_towers_between_which_python_reads_are_told_so() -> None:
    reads = replace(HOST, reads=20)
    (cause,) = causes_of(profile(host=reads, overlap_share=0.0, possible_overlap_share=0.45))
    assert "Python reads 2 values per call" in cause.sentence


def test_where_the_program_lets_nothing_wait_the_machine_is_to_be_looked_at() -> None:
    (cause,) = causes_of(profile(overlap_share=0.0, possible_overlap_share=0.45, apart=True))
    assert "nothing in the program makes one wait" in cause.sentence
    assert "control_dependencies" not in cause.sentence


def test_one_device_is_never_called_serialised_or_alone_with_the_backward_pass() -> None:
    one = profile(times(0, gradient_ops=10), overlap_share=None, possible_overlap_share=None)
    assert causes_of(one) == ()


def test_a_device_that_does_next_to_nothing_is_no_tower() -> None:
    idle = times(1, compute_ns=MS, forward_ops=0, gradient_ops=0)
    assert causes_of(profile(times(0), idle, overlap_share=0.0, possible_overlap_share=0.01)) == ()


def test_a_device_whose_ops_waited_for_a_core_in_one_call_leaves_the_other_one_a_tower() -> None:
    waited = times(1, compute_ns=1000 * MS, typical_compute_ns=90 * MS)
    found = profile(times(0, typical_compute_ns=90 * MS), waited, overlap_share=0.0, possible_overlap_share=0.45)
    assert [cause.kind for cause in causes_of(found)] == ["towers-serialised"]


def test_where_much_is_unattributed_nothing_is_said_of_towers_or_of_too_little_work() -> None:
    serial = profile(overlap_share=0.0, possible_overlap_share=0.45, host=replace(HOST, alone_ns=70 * MS))
    assert {cause.kind for cause in causes_of(serial)} == {"towers-serialised", "too-little-work"}
    assert causes_of(replace(serial, unattributed_ns=60 * MS, unattributed_ops=40)) == ()


def test_a_stage_with_more_ops_is_to_be_cut_elsewhere_and_stages_in_turns_are_dependent() -> None:
    stages = times(0, compute_ns=80 * MS, forward_ops=20), times(1, compute_ns=20 * MS, forward_ops=4, gradient_ops=3)
    (cause,) = causes_of(profile(*stages))
    assert cause.kind == "uneven-work"
    assert "They run 25 and 7 ops of a call: cut the stages elsewhere" in cause.sentence
    assert [each.kind for each in causes_of(profile(*stages, independent_share=0.0))] == ["dependent-work"]
    short = [times(index, compute_ns=ns * MS) for index, ns in enumerate((9, 2))]
    assert causes_of(profile(*short)) == ()  # a call would not be a tenth shorter


def test_a_stage_of_few_layers_takes_part_by_its_ops() -> None:
    stages = times(0, compute_ns=90 * MS, forward_ops=68), times(1, compute_ns=5 * MS, forward_ops=12)
    (cause,) = causes_of(profile(*stages))
    assert "They run 73 and 17 ops of a call" in cause.sentence
    joined = replace(stages[1], forward_ops=1, gradient_ops=1)
    assert causes_of(profile(stages[0], joined)) == ()


def test_devices_that_share_no_cores_are_compared_more_closely_and_by_the_least_of_each() -> None:
    devices = times(0, compute_ns=80 * MS), times(1, compute_ns=50 * MS)
    assert causes_of(profile(*devices)) == ()
    assert [each.kind for each in causes_of(profile(*devices, spec="gpu:2"))] == ["uneven-work"]
    waited = replace(devices[0], least_compute_ns=52 * MS), replace(devices[1], least_compute_ns=49 * MS)
    assert causes_of(profile(*waited, spec="gpu:2")) == ()


def test_time_that_tracing_and_waiting_for_data_explain_is_no_lack_of_work() -> None:
    traced = replace(HOST, alone_ns=70 * MS, calls_traced=10, traced=("step",), tracing_ns=50 * MS)
    assert [cause.kind for cause in causes_of(profile(host=traced))] == ["retracing"]


def test_tensors_made_of_python_values_are_host_copies_too() -> None:
    (cause,) = causes_of(profile(host=replace(HOST, convert_ns=35 * MS)))
    assert cause.kind == "host-copies"
    assert "NumPy values to tensors takes 35%" in cause.sentence
