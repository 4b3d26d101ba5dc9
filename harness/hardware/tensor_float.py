"""TF32: whether float32 products may use it, whether they did, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.hardware.naming import is_gpu
from harness.hardware.software.kernels import capability
from harness.records import Card

#: The first compute capability with TF32 (NVIDIA Ampere architecture whitepaper, 2020).
_FIRST = (8, 0)


@dataclass(frozen=True)
class TensorFloat:
    """A card, TensorFlow's setting, and whether float32 products were as coarse as TF32 (``None``: none ran)."""

    card: Card
    setting: bool | None
    coarse: bool | None


def may_use(card: Card, setting: bool | None) -> bool:
    """Whether float32 products of the card may be as coarse as TF32.

    TensorFlow's setting is on where nobody changes it, so that a setting which is not known may be on.
    """
    own = capability(card.compute_capability)
    return is_gpu(card) and setting is not False and (own is None or own >= _FIRST)


def said(seen: Sequence[TensorFloat]) -> tuple[str, ...]:
    """A sentence for each way in which cards behave; of CPUs, that there is none."""
    groups: dict[str, list[str]] = {}
    for each in seen:
        groups.setdefault(_sentence(each), []).append(each.card.label)
    return tuple(f"{sentence}: {', '.join(labels)}" for sentence, labels in groups.items())


def _sentence(each: TensorFloat) -> str:
    if not is_gpu(each.card):
        return "TF32 is not there, float32 products are float32"
    setting = {True: "on", False: "off", None: "of unknown setting"}[each.setting]
    if each.coarse is None:
        return f"TF32 is {setting}, and no float32 product showed whether it is used"
    how = "use it (about 3 decimal digits)" if each.coarse else "do not use it"
    return f"TF32 is {setting}, and float32 products {how}"
