"""Faults that a single run does not show: results that differ from run to run, slow cards and slow links."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import pytest
from described_machines import text
from executed_machines import ONE_BRIDGE, PCIE

from harness.softgpu import DescribedGpus
from harness.softgpu.compiler import NAMES

_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")
_TIMEOUT_S = 900
#: How often two are compared before they count as alike: a busy machine may hide the difference once.
_TRIES = 5
_PAIRS = 15
_CARDS = f"software_mib = 256\n{ONE_BRIDGE}"


def described(*faults: str) -> DescribedGpus:
    """Three cards, the first two with a bridge."""
    from harness.devices.described.reading import read_description
    from harness.devices.described.state import gpus_of

    return gpus_of(read_description("three.toml", text(3, PCIE, *faults, cards=_CARDS)), "three.toml")


def results_that_differ() -> None:
    """Run the check `arithmetic` on the cards in good order, and with one that does not repeat its results."""
    import harness
    from harness.checking.check import CheckContext
    from harness.hardware.arithmetic.check import CHECK
    from harness.hardware.real import TensorFlowMachine
    from harness.records import Verdict
    from harness.softgpu import switch

    with TemporaryDirectory() as folder:
        path = Path(folder) / "three.toml"
        path.write_text(text(3, PCIE, cards=_CARDS), encoding="utf-8")
        devices = harness.configure(f"softgpu:{path}")
    for faults, verdict, named in (([], Verdict.PASS, set()), (["nondeterministic card = 1"], Verdict.FAIL, {"GPU:1"})):
        switch(described(*faults))
        result = CHECK.run(CheckContext(devices, machine=TensorFlowMachine(devices)))
        assert result.verdict is verdict, result.reason
        assert {finding.kind for finding in result.findings} == ({"nondeterminism"} if faults else set())
        assert {(finding.device or "").rpartition("device:")[2] for finding in result.findings} == named


def test_a_card_that_does_not_repeat_its_results_is_found_by_the_check_arithmetic(
    fresh_process: Callable[..., object],
) -> None:
    fresh_process(results_that_differ, timeout_s=_TIMEOUT_S)


def slow_cards_and_links() -> None:
    """Compare two cards, or two links, in pairs: as they are in good order, and with one of them slow."""
    import tensorflow as tf

    from harness.softgpu import load, switch

    def times_as_long(one: Callable[[], Any], other: Callable[[], Any]) -> float:
        def seconds(program: Callable[[], Any]) -> float:
            began = perf_counter()
            program()
            return perf_counter() - began

        one(), other()
        return median(seconds(other) / seconds(one) for _ in range(_PAIRS))

    def compared(program: Callable[[int], Any], cards: tuple[int, int], fault: str) -> None:
        one, other = ((lambda card=card: program(card)) for card in cards)
        seen: list[tuple[float, float]] = []
        # Each of these faults makes it 10 to 16 times as long, and what else the machine does makes both sides longer.
        while not seen or not seen[-1][0] < 3 < seen[-1][1]:
            assert len(seen) < _TRIES, (fault, seen)
            switch(described())
            clean = times_as_long(one, other)
            switch(described(fault))
            seen.append((clean, times_as_long(one, other)))

    load(tf, described())
    with tf.device("CPU"):
        on_host = tf.ones(2**22)
    on_card, matrices = [], []
    for card in range(3):
        with tf.device(f"GPU:{card}"):
            on_card.append(tf.ones(2**22))
            matrices.append(tf.ones((512, 512)))

    def product(card: int) -> None:
        with tf.device(f"GPU:{card}"):
            tf.matmul(matrices[card], matrices[card])

    def copy(source: Any, of: str, to: str) -> None:
        with tf.device(of):
            copied = tf.identity(source)  # TensorFlow copies a tensor only once
        with tf.device(to):
            tf.identity(copied)

    def from_host(card: int) -> None:
        copy(on_host, "CPU", f"GPU:{card}")

    def to_first(card: int) -> None:
        copy(on_card[card], f"GPU:{card}", "GPU:0")

    compared(product, (0, 1), "slow card = 1, factor = 0.1")
    compared(from_host, (0, 1), "link-width card = 1, width = 1")
    compared(from_host, (0, 1), "link-generation card = 1, generation = 1")
    compared(to_first, (2, 1), "nvlink-down card = 1, links = 12")
    compared(to_first, (1, 2), "link-width card = 2, width = 1")  # which no bridge joins to the first card


def test_a_slow_card_and_a_slow_link_take_longer_than_the_others(fresh_process: Callable[..., object]) -> None:
    fresh_process(slow_cards_and_links, timeout_s=_TIMEOUT_S)
