"""A plug-in for machines that compute with NumPy: checks of hardware give them less data than a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.checking.check import Level
from harness.hardware.arithmetic import check as arithmetic
from harness.hardware.arithmetic.trials import Trial, rates_of
from harness.hardware.collectives import check as collectives
from harness.hardware.copies import check as copies
from harness.hardware.operations import numpy_dtype


@pytest.fixture
def little_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send little, and measure rates of operations whose work only a clock counts: operands and results are blank."""

    def rates(level: Level, on_gpu: bool, room_bytes: int | None = None) -> list[Trial]:
        return [_blank(trial) for trial in rates_of(level, on_gpu, room_bytes)]

    monkeypatch.setattr(arithmetic, "rates_of", rates)
    monkeypatch.setitem(copies.SIZES, Level.QUICK, (2**12, 2**20, 2**23))
    for sizes in (collectives.ELEMENTS, collectives.ELEMENTS_CPU):
        monkeypatch.setitem(sizes, Level.QUICK, (2**10, 2**14))


def _blank(trial: Trial) -> Trial:
    def draw(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        return np.broadcast_to(np.ones((), numpy_dtype(dtype)), shape)

    def result(*operands: NDArray[Any]) -> NDArray[Any]:
        return np.ones(64)

    return replace(trial, draw=draw, operation=replace(trial.operation, reference=result))
