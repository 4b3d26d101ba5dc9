"""TF32: whether float32 products may use it, whether they did, and how to switch it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from harness.hardware.software.kernels import capability
from harness.lazy import tf
from harness.records import Card

#: The first compute capability with TF32 (NVIDIA Ampere architecture whitepaper, 2020).
_FIRST = (8, 0)


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


def describe_tf32(cards: Sequence[Card], setting: bool | None, coarse: Mapping[str, bool]) -> list[str]:
    """Describe how the cards use TF32, one sentence for each group of cards.

    ``coarse`` says by label whether float32 products were as coarse as TF32, where some ran.
    """
    groups: dict[str, list[str]] = {}
    for card in cards:
        groups.setdefault(_sentence(card, setting, coarse.get(card.label)), []).append(card.label)
    return [f"{', '.join(labels)}: {sentence}" for sentence, labels in groups.items()]


def _sentence(card: Card, setting: bool | None, coarse: bool | None) -> str:
    if not card.is_gpu:
        return "no TF32, float32 products have full precision"
    on = {True: "TF32 is on", False: "TF32 is off", None: "TF32 setting unknown"}[setting]
    if coarse is None:
        return f"{on}, no float32 product ran"
    return f"{on}, float32 products {'use it (about 3 decimal digits)' if coarse else 'do not use it'}"
