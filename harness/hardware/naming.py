"""How findings call a card: by what somebody in front of the machine can find it by."""

from __future__ import annotations

from harness.records import Card


def kind_of(card: Card) -> str:
    """``CPU`` or ``GPU``: the first part of the label; ``nvml`` where the driver alone has the card."""
    return card.label.partition(":")[0].rpartition("/")[2]


def is_gpu(card: Card) -> bool:
    """Whether it is a GPU, logical or not."""
    return kind_of(card) in ("GPU", "nvml")


def shares_threads(card: Card) -> bool:
    """Whether it is a logical CPU of this process, which all run on one pool of threads.

    One that is slower than another says nothing of hardware: on a busy machine the fastest of six rounds, in turns with
    the others, was a quarter of their median.
    """
    return card.label.startswith("CPU:")


def device_of(card: Card) -> str:
    """TensorFlow's full name of it; its label where TensorFlow does not have it."""
    return card.device or card.label


def described(card: Card) -> str:
    """The label with what else tells the card from others: ``GPU:3 (NVIDIA L4, 0000:3B:00.0)``."""
    what = ", ".join(each for each in (card.name, card.pci or card.uuid) if each)
    return f"{card.label} ({what})" if what else card.label


def alike(cards: tuple[Card, ...]) -> dict[tuple[str, str], tuple[Card, ...]]:
    """The cards of each kind and model, in order."""
    groups: dict[tuple[str, str], tuple[Card, ...]] = {}
    for card in cards:
        key = (kind_of(card), card.name)
        groups[key] = (*groups.get(key, ()), card)
    return groups
