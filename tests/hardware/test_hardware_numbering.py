"""Which cards are there, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.hardware.card import MIG
from harness.hardware.cards.judge import judge_numbering
from harness.records import Card, Verdict

UUIDS = [f"GPU-{letter * 8}" for letter in "abcd"]
DRIVER = [
    Card(f"nvml:{index}", "a card", None, index, uuid, f"0000:{index:02X}:00.0") for index, uuid in enumerate(UUIDS)
]


def tensorflow(*slots: int) -> list[Card]:
    return [replace(DRIVER[slot], label=f"GPU:{at}", device=f"/device:GPU:{at}") for at, slot in enumerate(slots)]


def said(slots: list[int], visible: str | None = None) -> list[tuple[str | None, Verdict]]:
    cards = tensorflow(*slots)
    found, scope = judge_numbering(cards, DRIVER, [card.uuid or "" for card in cards], visible)
    assert scope
    return [(each.device, each.severity) for each in found]


@pytest.mark.parametrize(
    ("slots", "visible"),
    [
        ([0, 1, 2, 3], None),
        ([3, 1], "3,1"),
        ([2], "2"),
        ([1, 0], "GPU-bbbb,GPU-aaaa"),
        ([0, 1], "0,1,-1,2"),
        ([], "-1"),
        ([0], "0,9,1"),
    ],
)
def test_what_cuda_visible_devices_makes_is_right(slots: list[int], visible: str | None) -> None:
    assert said(slots, visible) == []


def test_a_card_that_is_missing_is_named_and_one_that_is_hidden_is_not() -> None:
    assert said([0, 1, 3]) == [("nvml:2", Verdict.FAIL)]
    assert said([3], "3,1") == [("nvml:1", Verdict.FAIL)]
    assert said([0, 1], "0,1") == []


def test_a_card_that_is_missing_hides_no_wrong_order() -> None:
    swapped = [("/device:GPU:0", Verdict.WARN), ("/device:GPU:1", Verdict.WARN)]
    assert said([1, 0, 3]) == [("nvml:2", Verdict.FAIL), *swapped]


def test_another_order_than_the_one_asked_for_is_a_warning_for_both() -> None:
    assert said([1, 0, 2, 3]) == [("/device:GPU:0", Verdict.WARN), ("/device:GPU:1", Verdict.WARN)]
    assert said([1, 3], "3,1") == [("/device:GPU:0", Verdict.WARN), ("/device:GPU:1", Verdict.WARN)]


def test_a_card_in_slices_is_not_missed_where_cuda_shows_a_slice_of_it() -> None:
    """With MIG, CUDA shows a process one slice, which has a UUID of its own, and no whole card."""
    divided = [replace(each, part=MIG) for each in DRIVER[:2]]
    shown = replace(DRIVER[0], label="GPU:0", device="/device:GPU:0", uuid="MIG-aaaa", part=MIG)
    for present, numbering in ((divided, ["MIG-aaaa"]), ([*divided, *DRIVER[2:]], ["MIG-aaaa", *UUIDS[2:]])):
        found, scope = judge_numbering([shown], present, numbering, None)
        assert found == []
        assert (
            scope[0] == "2 GPUs with MIG: CUDA shows each process one slice; whether it is the right one is not judged"
        )
    found, _ = judge_numbering([shown], [*divided, *DRIVER[2:]], ["MIG-aaaa", UUIDS[2]], None)
    assert [each.device for each in found] == ["nvml:3"], "a whole card beside them is missed"


def test_cards_of_several_models_are_sorted_by_cuda_itself() -> None:
    mixed = [replace(DRIVER[0], name="a small card"), *DRIVER[1:]]
    cards = tensorflow(1, 2, 3, 0)
    found, scope = judge_numbering(cards, mixed, [card.uuid or "" for card in cards], None)
    assert found == []
    assert any("CUDA sorts them by speed" in line for line in scope)


def test_a_subset_that_was_asked_for_is_not_missing_cards() -> None:
    found, _ = judge_numbering(tensorflow(0, 1), DRIVER, UUIDS, None)
    assert found == [], "TensorFlow has four, two are checked"


def test_without_a_driver_it_is_said_and_not_passed_over() -> None:
    cpus = [Card(f"CPU:{index}", "a processor", f"/device:CPU:{index}") for index in range(2)]
    found, scope = judge_numbering(cpus, cpus, (), None)
    assert (found, scope) == ([], ["no GPU, so the order of GPUs was not compared with the driver's"])
    found, scope = judge_numbering([replace(card, uuid=None) for card in tensorflow(0, 1)], [], (), None)
    assert not found
    assert "would not be noticed" in scope[0]


def test_one_device_twice_is_found() -> None:
    twice = [tensorflow(0)[0], replace(tensorflow(1)[0], device="/device:GPU:0")]
    found, _ = judge_numbering(twice, (), (), None)
    assert len(found) == 2
