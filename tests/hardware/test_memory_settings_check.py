"""The check ``memory-settings``: what a process saw, right and wrong, and a real process on a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from numpy_machine import CPU_SOFTWARE, NumpyMachine, context, cpus, gpus

from harness.checking.check import CheckContext
from harness.devices.device import Device, Devices
from harness.hardware.memory_settings import measure
from harness.hardware.memory_settings.check import CHECK
from harness.hardware.memory_settings.judge import judge_setting, too_full
from harness.hardware.memory_settings.measure import see_each
from harness.hardware.memory_settings.setting import (
    CPU_SPLIT,
    GROWTH,
    LIMIT,
    SPLIT,
    MemorySeen,
    MemorySetting,
)
from harness.records import Verdict

_MIB = 2**20
_PLACE = "/job:localhost/replica:0/task:0/device:"
CARD = gpus(2)[1]
GREW = MemorySeen(("GPU:0",), (64 * _MIB,), (_PLACE + "GPU:0",), 0, 20_000 * _MIB, 600 * _MIB)
LIMITED = replace(GREW, had_bytes=(240 * _MIB,), held_bytes=800 * _MIB)
HALVES = replace(
    LIMITED,
    parts=("GPU:0", "GPU:1"),
    had_bytes=(112 * _MIB, 112 * _MIB),
    placed=(_PLACE + "GPU:0", _PLACE + "GPU:1"),
)
CPUS = MemorySeen(("CPU:0", "CPU:1"), (64 * _MIB,) * 2, (_PLACE + "CPU:0", _PLACE + "CPU:1"), 0, None, None)


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (GROWTH, GREW),
        (LIMIT, LIMITED),
        (SPLIT, HALVES),
        (CPU_SPLIT, CPUS),
        (GROWTH, replace(GREW, held_bytes=None)),
        # Others have the card: that is no fault of the setting's, and proves nothing.
        (LIMIT, replace(LIMITED, had_bytes=(0,), placed=(), free_bytes=300 * _MIB)),
    ],
)
def test_a_setting_that_does_what_it_says_is_right(setting: MemorySetting, seen: MemorySeen) -> None:
    assert list(judge_setting(CARD, setting, seen)) == []


@pytest.mark.parametrize(
    ("setting", "seen", "said"),
    [
        (
            GROWTH,
            replace(GREW, held_bytes=18_000 * _MIB),
            "reserves 18,000 MiB for a process that uses 64 MiB",
        ),
        (GROWTH, replace(GREW, had_bytes=(16 * _MIB,)), "only 16 MiB on its GPU:0"),
        (LIMIT, replace(LIMITED, had_bytes=(272 * _MIB,)), "allocate 272 MiB on its GPU:0"),
        (LIMIT, replace(LIMITED, had_bytes=(128 * _MIB,)), "only 128 MiB"),
        (LIMIT, replace(LIMITED, held_bytes=18_000 * _MIB), "with a limit of 256 MiB reserves 18,000 MiB"),
        (LIMIT, replace(LIMITED, wrong=1), "changed the content of 1 buffer"),
        (
            SPLIT,
            replace(HALVES, parts=("GPU:0",), had_bytes=(112 * _MIB,), placed=(_PLACE + "GPU:0",)),
            "gives 1 logical device: GPU:0",
        ),
        (SPLIT, replace(HALVES, had_bytes=(112 * _MIB, 16 * _MIB)), "only 16 MiB on its GPU:1"),
        (SPLIT, replace(HALVES, placed=(_PLACE + "GPU:0", _PLACE + "CPU:0")), "on /job:localhost"),
        (
            CPU_SPLIT,
            replace(CPUS, parts=("CPU:0",), had_bytes=(1,), placed=(_PLACE + "CPU:0",)),
            "gives 1 logical device: CPU:0",
        ),
        (GROWTH, "exit code 1: no such card", "failed: exit code 1"),
    ],
)
def test_one_that_does_not_is_found_and_names_the_card(
    setting: MemorySetting, seen: MemorySeen | str, said: str
) -> None:
    found = list(judge_setting(CARD, setting, seen))
    assert said in found[0].message
    for each in found:
        assert (each.kind, each.device) == ("memory", CARD.device)
        assert each.message.startswith("GPU:1 ")
        assert "TF_FORCE_GPU_ALLOW_GROWTH" in each.next_step


def test_a_full_card_is_told_from_one_with_room() -> None:
    assert not too_full(GROWTH, GREW)
    assert too_full(LIMIT, replace(LIMITED, free_bytes=1000 * _MIB))
    assert not too_full(LIMIT, replace(LIMITED, free_bytes=None))


@pytest.mark.usefixtures("forked_workers")
def test_a_real_process_has_its_cpu_split() -> None:
    """The same code that takes a GPU by its UUID."""

    class OnThisCpu(NumpyMachine):
        def memory_settings(self, trials: object) -> list[MemorySeen | str]:
            assert trials == [("CPU:0", CPU_SPLIT)]
            return see_each([(None, CPU_SPLIT)])

    machine = OnThisCpu(cpus(2), facts=CPU_SOFTWARE)
    there = Devices([Device(_PLACE + "CPU:0", "logical-cpu", "/physical_device:CPU:0")] * 2, spec="cpu:2")
    outcome = CHECK.run(CheckContext(there, machine=machine))
    assert (outcome.verdict, outcome.findings) == (Verdict.PASS, ())
    assert outcome.exercised.programs == 1
    assert outcome.exercised.values == 2 * 64 * _MIB // 4
    assert outcome.exercised.devices == (_PLACE + "CPU:0",)


def test_a_process_that_breaks_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "TASK", "harness.hardware.not_there:run")
    (seen,) = see_each([(None, CPU_SPLIT)])
    assert isinstance(seen, str)
    assert "not_there" in seen


class _Answering(NumpyMachine):
    """GPUs of which each process sees what a right one does, but for what ``altered`` does to it."""

    @staticmethod
    def altered(seen: MemorySeen) -> MemorySeen:
        return seen

    def memory_settings(self, trials: object) -> list[MemorySeen | str]:
        assert isinstance(trials, list)
        by_setting = {"growth": GREW, "limit": LIMITED, "split": HALVES}
        return [self.altered(by_setting[setting.name]) for _, setting in trials]


def test_a_driver_that_says_nothing_and_a_full_card_prove_nothing() -> None:
    assert CHECK.run(context(_Answering(gpus(2)))).verdict is Verdict.PASS
    silent, full = _Answering(gpus(2)), _Answering(gpus(2))
    silent.altered = lambda seen: replace(seen, held_bytes=None)  # type: ignore[method-assign]
    full.altered = lambda seen: replace(seen, free_bytes=100 * _MIB)  # type: ignore[method-assign]
    for machine, why in (
        (silent, "does not report the memory of a process"),
        (full, "leave only 100 MiB free"),
    ):
        outcome = CHECK.run(context(machine))
        assert outcome.verdict is Verdict.UNKNOWN
        assert why in outcome.reason


def test_a_card_without_a_uuid_proves_nothing() -> None:
    machine = _Answering(tuple(replace(card, uuid=None) for card in gpus(1)))
    outcome = CHECK.run(context(machine))
    assert outcome.verdict is Verdict.UNKNOWN
    assert "UUID" in outcome.reason


def test_devices_that_begin_elsewhere_are_skipped_with_the_reason() -> None:
    parts = Devices([Device("/device:GPU:0", "logical-gpu", "/physical_device:GPU:0")], spec="gpu:1x2")
    outcome = CHECK.run(CheckContext(parts, machine=NumpyMachine(gpus(1))))
    assert outcome.verdict is Verdict.SKIP
    assert "gpu:1x2" in outcome.reason
