"""What the benchmarks of several processes rest on: a death or a hang is told, and nothing is left."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import process_group
import psutil
import pytest
from dense_processes import LAYERS, sizes
from process_group import Group, Member, running

from harness.errors import WorkerFailed


def one_process(folder: Path, own: int = 1 + LAYERS) -> AbstractContextManager[Group]:
    told: dict[str, object] = {"cpu": None, "rows": 8, "own": list(range(own))}
    return running(lambda _: [Member("alone", "alone", told)], 0, folder)


def children() -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


def test_steps_give_the_same_each_time_and_nothing_is_left(tmp_path: Path) -> None:
    before = children()
    with one_process(tmp_path) as group:
        first, second = group.step(), group.step()
        assert [len(each) for each in first] == sizes()
        assert all(np.isfinite(each).all() and np.abs(each).max() > 0 for each in first)
        assert all(np.array_equal(*pair) for pair in zip(first, second, strict=True))
        assert group.busy_s()["alone"] > 0
    assert children() == before


def test_a_part_that_nobody_hands_over_is_nan_and_not_that_of_an_earlier_step(tmp_path: Path) -> None:
    with one_process(tmp_path, own=1) as group:
        for _ in range(2):
            loss, *gradients = group.step()
            assert np.isfinite(loss).all()
            assert all(np.isnan(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(
    ("sent", "said"),
    [(signal.SIGKILL, "alone ended: killed by SIGKILL"), (signal.SIGSTOP, "alone did not answer in time")],
)
def test_a_death_and_a_hang_are_told_and_nothing_is_left(
    sent: signal.Signals, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_group, "STEP_LIMIT_S", 2.0)
    before = children()
    with one_process(tmp_path) as group:
        [process] = [each for each in children() if each not in before]
        process.send_signal(sent)
        with pytest.raises(WorkerFailed, match=said):
            group.step()
    assert children() == before
