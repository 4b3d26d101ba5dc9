"""TF32: whether float32 products may use it, whether they did, and how to switch it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from harness.hardware.software.kernels import capability
from harness.lazy import tf
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
    """Return whether float32 products of the card may be as coarse as TF32.

    TensorFlow's setting is on by default, so an unknown setting may be on.
    """
    own = capability(card.compute_capability)
    return card.is_gpu and setting is not False and (own is None or own >= _FIRST)


@contextmanager
def tf32_set(on: bool | None) -> Iterator[None]:
    """Switch TF32 on or off for the kernels that run inside; ``None`` changes nothing and loads no TensorFlow."""
    if on is None:
        yield
        return
    before = bool(tf.config.experimental.tensor_float_32_execution_enabled())
    tf.config.experimental.enable_tensor_float_32_execution(on)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def describe_tf32(seen: Sequence[TensorFloat]) -> tuple[str, ...]:
    """Describe how the cards use TF32, one sentence for each group of cards."""
    groups: dict[str, list[str]] = {}
    for each in seen:
        groups.setdefault(_sentence(each), []).append(each.card.label)
    return tuple(f"{sentence}: {', '.join(labels)}" for sentence, labels in groups.items())


def _sentence(each: TensorFloat) -> str:
    if not each.card.is_gpu:
        return "no TF32: float32 products have full precision"
    setting = {True: "TF32 is on", False: "TF32 is off", None: "TF32 setting unknown"}[each.setting]
    if each.coarse is None:
        return f"{setting}, no float32 product ran"
    return f"{setting}, float32 products {'use it (about 3 decimal digits)' if each.coarse else 'do not use it'}"
