"""Named cards: how they are given, and what is predicted for them. No TensorFlow runs here."""

from __future__ import annotations

import pytest

from harness.advice.cards import Cards
from harness.advice.step_time import Task
from harness.devices.shipped import shipped_folder
from harness.errors import UsageError

CARDS = [path.stem for path in shipped_folder("hardware").glob("*.toml") if path.stem != "cpu-core"]


def towers(count: int, *, flop: float = 1e12, size_bytes: float = 0.0) -> list[Task]:
    """A product of a batch in shards, whose gradients of ``size_bytes`` go to the first card."""
    shards = [Task(f"{n}", f"GPU:{n}", {}, flop / count) for n in range(count)]
    return [*shards, Task("sum", "GPU:0", dict.fromkeys([shard.name for shard in shards], size_bytes))]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("h100x:8", r"--for h100x:8: there is no profile of a card 'h100x'; accepted: CARD:N.*mean 'h100-sxm'"),
        ("cpu-core:2", "there is no profile of a card 'cpu-core'"),
        ("", "there is no profile of a card ''; accepted: CARD:N, such as h100-sxm:8, with one of these cards: a10,"),
        ("h100-sxm", "--for h100-sxm: how many cards.* accepted: CARD:N.*; write h100-sxm:1 for one"),
        ("h100-sxm:0", "--for h100-sxm:0: '0' cards; accepted: CARD:N, such as h100-sxm:8, with N of 1 or more"),
        ("h100-sxm:", "'' cards; accepted"),
        ("h100-sxm:-1", "'-1' cards; accepted"),
        ("h100-sxm:two", "'two' cards; accepted"),
        ("h100-sxm:²", "'²' cards; accepted"),
    ],
)
def test_what_names_no_cards_is_refused(given: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        Cards.parse(given)
    assert "\n" not in str(raised.value)


def test_every_profile_of_a_card_can_be_named() -> None:
    assert len(CARDS) > 20
    for name in CARDS:
        cards = Cards.parse(f"{name}:2")
        found = cards.predict(towers(1), towers(2))
        assert str(cards) == f"{name}:2"
        assert found.speedup.lower < found.speedup.value < found.speedup.upper
        assert found.interval_ns[0] < found.time_ns < found.interval_ns[1]


def test_large_work_gains_from_more_cards_and_small_work_does_not() -> None:
    cards = Cards.parse("h100-sxm:8")
    large = cards.predict(towers(1, flop=1e13), towers(8, flop=1e13))
    assert 7.5 < large.speedup.value <= 8.0
    assert large.speedup.lower > 1.0
    small = cards.predict(towers(1, flop=1e6), towers(8, flop=1e6, size_bytes=1e6))
    assert small.speedup.upper < 1.0


def test_better_cards_and_links_take_less_time() -> None:
    def seconds(name: str, tasks: list[Task]) -> float:
        return Cards.parse(f"{name}:8").predict(tasks, tasks).time_ns

    assert seconds("h100-sxm", towers(1)) < seconds("a100-sxm-80gb", towers(1)) < seconds("t4", towers(1))
    copied = towers(8, size_bytes=1e8)
    assert seconds("h100-sxm", copied) < 0.5 * seconds("h100-pcie", copied)


def test_tf32_is_what_float32_products_run_with() -> None:
    flops = Cards.parse("h100-sxm:1").machine().device.product_flops
    assert flops["float32"] > 3 * flops["float64"]
    assert Cards.parse("v100-sxm:1").machine(product=2).device.product_flops["float32"] == pytest.approx(15.7e12)
