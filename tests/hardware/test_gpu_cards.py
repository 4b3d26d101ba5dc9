"""What is asked about GPUs, with a TensorFlow, a driver and cards that are made up."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from fake_gpus import PREFIX, fake_gpus, gpus
from fake_nvml import UUIDS, NVMLError, fake_nvml, refuse

from harness.devices import nvidia
from harness.hardware import room
from harness.hardware.card import MIG, cards_of, slot_of
from harness.hardware.cards.judge import judge_numbering, judge_unreachable
from harness.hardware.collectives.measure import algorithms_for
from harness.hardware.counters import judge_silence
from harness.hardware.finding import RESET
from harness.records import Card

_MIB = 2**20
_CARD = nvidia.Card("NVIDIA H100 80GB HBM3", UUIDS[0], 80_000, 79_000)


@pytest.fixture
def renumbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA counts the two cards, real ones, the other way round than the driver."""
    monkeypatch.setattr("harness.hardware.card.loaded", lambda: None)
    monkeypatch.setitem(sys.modules, "tensorflow", fake_gpus())
    monkeypatch.setattr(nvidia, "cuda_uuids", lambda: (UUIDS[1], UUIDS[0]))


@pytest.mark.usefixtures("renumbered")
def test_cards_are_known_by_their_uuid_in_the_order_of_either() -> None:
    cards, present = cards_of(gpus(), nvidia.read_cards(fake_nvml()))
    assert [(card.label, card.uuid, card.pci) for card in cards] == [
        ("GPU:0", UUIDS[1], "0000:3C:00.0"),
        ("GPU:1", UUIDS[0], "0000:3B:00.0"),
    ]
    assert present == (cards[1], cards[0])
    first = cards[0]
    assert (first.name, first.compute_capability, first.profile) == ("NVIDIA H100 80GB HBM3", "9.0", "H100 SXM")
    assert first.memory_bytes == 85_000_000_000 // _MIB * _MIB


@pytest.mark.usefixtures("renumbered")
def test_a_card_that_no_device_is_on_is_present_all_the_same() -> None:
    cards, present = cards_of(gpus()[:1], nvidia.read_cards(fake_nvml()))
    assert [card.label for card in cards] == ["GPU:0"]
    assert [(card.label, card.uuid, card.device) for card in present] == [
        ("nvml:0", UUIDS[0], None),
        ("GPU:0", UUIDS[1], cards[0].device),
    ]


def test_a_slice_of_a_card_has_its_own_memory_and_the_facts_of_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA names the slice, and the driver lists its card: both are the same GPU, and nothing is missing."""
    own = "MIG-00000000-0000-0000-0000-000000000001"
    sizes = {2: 10_000_000_000}

    def part(handle: int, number: int) -> int:
        return 2 if handle == 0 and number == 1 else refuse()

    driver = fake_nvml(
        nvmlDeviceGetMigMode=lambda handle: (int(handle == 0), 0),
        nvmlDeviceGetMaxMigDeviceCount=lambda handle: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=part,
        nvmlDeviceGetUUID=lambda handle: own if handle == 2 else UUIDS[handle],
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=sizes.get(handle, 80_000_000_000), free=9 * 10**9),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", fake_gpus())
    monkeypatch.setattr(nvidia, "cuda_uuids", lambda: (own, UUIDS[1]))
    cards, present = cards_of(gpus(), nvidia.read_cards(driver))
    assert [(card.uuid, card.part, card.pci, card.profile) for card in cards] == [
        (own, MIG, "0000:3B:00.0", None),
        (UUIDS[1], None, "0000:3C:00.0", "H100 SXM"),
    ]
    assert cards[0].memory_bytes == sizes[2] // _MIB * _MIB
    assert [(card.label, card.part) for card in present] == [("nvml:0", MIG), ("GPU:1", None)]
    found, _ = judge_numbering(cards, present, [own, UUIDS[1]], None)
    assert found == []


def test_without_a_driver_the_cards_are_those_of_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", fake_gpus())
    cards, present = cards_of(gpus(), ())
    assert present == cards
    assert [(card.label, card.uuid, card.profile) for card in cards] == [
        ("GPU:0", None, "H100 SXM"),
        ("GPU:1", None, "H100 SXM"),
    ]


def test_a_card_is_not_guessed_where_cuda_does_not_say_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", fake_gpus())
    monkeypatch.setattr(nvidia, "cuda_uuids", lambda: (UUIDS[1],))
    cards, present = cards_of(gpus(), nvidia.read_cards(fake_nvml()))
    assert [card.uuid for card in cards] == [None, None]
    assert [card.label for card in present] == ["nvml:0", "nvml:1"]


def _free(
    monkeypatch: pytest.MonkeyPatch,
    tensorflow: object,
    part: int = 0,
    card: nvidia.Card = _CARD,
    limit_bytes: int = 0,
) -> int | None:
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    monkeypatch.setattr(nvidia, "read_cards", lambda: (card,))
    monkeypatch.setattr(room, "memory_limits", lambda: {f"{PREFIX}GPU:0": limit_bytes, f"{PREFIX}CPU:0": 2**28})
    return room.gpu_free_bytes(gpus(parts=2 if part else 1)[part], UUIDS[0])


def test_a_logical_gpu_has_what_its_limit_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    split = fake_gpus(limits_mib=(1000, 2000), used=100 * _MIB)
    assert _free(monkeypatch, split) == 900 * _MIB
    assert _free(monkeypatch, split, part=1) == 1900 * _MIB
    assert _free(monkeypatch, fake_gpus(limits_mib=(1000, 2000), used=None)) is None


def test_a_gpu_that_grows_has_what_the_card_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _free(monkeypatch, fake_gpus(growth=True)) == 79_000 * _MIB


def test_what_tensorflow_holds_and_does_not_use_is_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the driver calls free is the rest beside TensorFlow's pool: to test 90 % of that proves next to nothing."""
    held = fake_gpus(used=300 * _MIB)
    full = nvidia.Card(_CARD.name, _CARD.uuid, 80_000, 4_000)
    assert _free(monkeypatch, held, card=full, limit_bytes=75_000 * _MIB) == (75_000 - 300) * _MIB
    assert _free(monkeypatch, held, limit_bytes=75_000 * _MIB) == (75_000 - 300) * _MIB, "before its first tensor"
    assert _free(monkeypatch, held, card=full) is None, "nobody says how much it may have"
    assert _free(monkeypatch, fake_gpus(used=None), card=full, limit_bytes=75_000 * _MIB) is None


def test_a_card_that_the_driver_does_not_know_has_no_known_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", fake_gpus(growth=True))
    monkeypatch.setattr(nvidia, "read_cards", tuple)
    assert room.gpu_free_bytes(gpus()[0], UUIDS[0]) is None
    assert room.gpu_used_bytes(gpus()[0]) == 0


def test_nccl_is_for_ranks_on_cards_of_their_own() -> None:
    assert algorithms_for(gpus()) == ("nccl", "ring", "hierarchical-copy", "reduce-to-one")
    assert algorithms_for(gpus(1, parts=2)) == ("ring", "hierarchical-copy", "reduce-to-one")
    # TensorFlow's hierarchical copy adds up 2 of 3 devices.
    assert algorithms_for(gpus(3)) == ("nccl", "ring", "reduce-to-one")
    assert algorithms_for(gpus(1)) == ()


def test_the_slot_is_what_the_board_calls_it(tmp_path: Path) -> None:
    for name, address in (("7", "0000:3b:00"), ("12", "0000:3c:00")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "address").write_text(f"{address}\n", encoding="ascii")
    assert [slot_of(pci, tmp_path) for pci in ("0000:3C:00.0", "0000:3D:00.0", None)] == ["12", None, None]
    assert slot_of("0000:3C:00.0", tmp_path / "none") is None


@pytest.mark.usefixtures("renumbered")
def test_a_lost_card_is_where_the_bus_has_one_that_the_driver_does_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    known = nvidia.read_cards(fake_nvml())
    on_bus = [str(card.pci).lower() for card in known]
    silent = (nvidia.SilentCard(2, "GPU is lost"), nvidia.SilentCard(3, "GPU is lost"))
    monkeypatch.setattr(nvidia, "silent_cards", lambda: silent)
    monkeypatch.setattr(nvidia, "in_container", lambda: False)

    def unreachable(*lost: str) -> list[tuple[str, str | None]]:
        monkeypatch.setattr(nvidia, "cards_on_bus", lambda: (*on_bus, *lost))
        return [(card.label, card.pci) for card in cards_of(gpus(), known)[1] if card.error]

    assert unreachable("0000:b1:00.0", "0000:b2:00.0") == [("nvml:2", "0000:b1:00.0"), ("nvml:3", "0000:b2:00.0")]
    assert unreachable("0000:b1:00.0") == [("nvml:2", None), ("nvml:3", None)], "which one it is, nothing says"
    more = unreachable("0000:b1:00.0", "0000:b2:00.0", "0000:b3:00.0")
    assert [label for label, _ in more] == [
        "nvml:2",
        "nvml:3",
        "pci:0000:b1:00.0",
        "pci:0000:b2:00.0",
        "pci:0000:b3:00.0",
    ]


@pytest.mark.usefixtures("renumbered")
def test_cards_that_another_job_has_are_not_missed_on_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    known = nvidia.read_cards(fake_nvml())
    monkeypatch.setattr(nvidia, "in_container", lambda: False)
    monkeypatch.setattr(nvidia, "cards_on_bus", lambda: (*(str(card.pci) for card in known), "0000:b1:00.0"))
    for counted, missing in ((3, []), (2, ["pci:0000:b1:00.0"])):
        monkeypatch.setattr(nvidia, "counted_cards", lambda count=counted: count)
        assert [card.label for card in cards_of(gpus(), known)[1] if card.error] == missing


def test_a_card_that_answers_only_who_it_is_is_silent_with_its_identity() -> None:
    class Error(NVMLError):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def memory(error: int) -> Any:
        def answer(handle: int) -> Any:
            if handle:
                raise Error(error)
            return SimpleNamespace(total=10**9, free=10**9)

        return answer

    lost = fake_nvml(nvmlDeviceGetMemoryInfo=memory(15), nvmlDeviceGetSerial=lambda handle: "S1")
    assert nvidia.silent_cards(lost) == (nvidia.SilentCard(1, "error 15", UUIDS[1], "0000:3C:00.0", "S1"),)
    # A card that works again after a reset is not to be powered off.
    reset = str(pynvml.NVMLError(pynvml.NVML_ERROR_RESET_REQUIRED))
    for error, step in ((reset, RESET), ("GPU is lost", "power the node off")):
        (found,) = judge_unreachable([Card("nvml:1", "x", error=error)])
        assert step in found.next_step
        assert step in judge_silence(Card("GPU:1", "x"), error).next_step
    # One that is given to another job is none of this process's business.
    assert nvidia.silent_cards(fake_nvml(nvmlDeviceGetMemoryInfo=memory(4))) == ()
    # A card that shares the memory of its host has none of its own.
    assert nvidia.silent_cards(fake_nvml(nvmlDeviceGetMemoryInfo=memory(3))) == ()
    assert nvidia.silent_cards(fake_nvml()) == ()
