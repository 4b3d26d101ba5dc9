"""A collective that never returns is given up, named with its size, and the other algorithms are tested."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any
from weakref import ref

import pytest
from numpy.typing import NDArray
from numpy_machine import NumpyMachine, context, gpus

from harness.hardware.collectives.check import CHECK
from harness.hardware.collectives.measure import Limited
from harness.hardware.machine import NeverReturns
from harness.records import CheckResult, RunRecord, Verdict
from harness.report.card_verdicts import verdict_lines

pytest_plugins = ["little_data"]
pytestmark = pytest.mark.usefixtures("little_data")


@dataclass
class _Hangs(NumpyMachine):
    """``algorithm`` never returns for ``kind``; the others do."""

    algorithm: str = ""
    kind: str = ""
    spent: bool = False
    tried: int = 0

    def collective(self, kind: str, algorithm: str, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        if algorithm == self.algorithm and kind == self.kind:
            self.spent, self.tried = True, self.tried + 1
            raise NeverReturns(40.0)
        return super().collective(kind, algorithm, arrays)


@pytest.mark.parametrize("kind", ["all-reduce", "broadcast"])
def test_it_is_named_with_its_algorithm_and_size_and_no_card_is_blamed(kind: str) -> None:
    cards = gpus(4)
    machine = _Hangs(cards, algorithm="ring", kind=kind)
    result = CHECK.run(context(machine))
    (found,) = result.findings
    assert (result.verdict, found.device, found.where) == (Verdict.FAIL, None, f"{kind} by ring")
    assert found.message.startswith(f"{kind} by ring over 4 devices hangs: with 4,096 bytes from each")
    assert len(found.devices) == 4
    assert machine.tried == 1, "its other kinds and sizes would wait again"
    assert any(f"{kind} reduce-to-one" in figure.name for figure in result.figures), "the others are tested"
    assert CHECK.run(context(_Hangs(cards))).verdict is Verdict.PASS


def test_nccl_gets_what_to_switch_off() -> None:
    class Nccl(_Hangs):
        def algorithms(self) -> tuple[str, ...]:
            return ("nccl", "ring")

    cards = gpus(2)
    result = CHECK.run(context(Nccl(cards, algorithm="nccl", kind="all-gather")))
    (found,) = result.findings
    for switch in ("NCCL_DEBUG=INFO", "NCCL_P2P_DISABLE=1", "NCCL_NVLS_ENABLE=0", "NCCL_SHM_DISABLE=1"):
        assert switch in found.next_step
    made = CheckResult("collectives", Verdict.FAIL, "", "", result.exercised, findings=result.findings)
    record = RunRecord("", "", (), "", Verdict.FAIL, 1, True, (made,), cards=cards)
    assert next(verdict_lines(record)) == "the machine: find out what makes NCCL hang; 2 GPUs otherwise healthy"


def test_a_call_is_given_up_and_the_next_one_is_not() -> None:
    limited: Limited[int] = Limited()
    assert limited.run(lambda: 1, 60.0) == 1
    with pytest.raises(ZeroDivisionError):
        limited.run(lambda: 1 // 0, 60.0)
    with pytest.raises(NeverReturns, match=r"0\.01 s"):
        limited.run(lambda: int(Event().wait()), 0.01)
    assert limited.run(lambda: 2, 60.0) == 2


def test_a_call_that_is_done_holds_nothing() -> None:
    class Tensor:
        pass

    limited: Limited[Tensor] = Limited()
    held = ref(limited.run(Tensor, 60.0))
    deadline = time.monotonic() + 60.0
    while held() is not None and time.monotonic() < deadline:
        time.sleep(0.01)  # the thread still has to let go of it
    assert held() is None
