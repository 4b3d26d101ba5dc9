from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from synthetic_runs import FINGERPRINT

from harness.records import Fingerprint, GpuFacts
from harness.speed.comparable import comparable_facts, differences, machine_key

_CARD = GpuFacts("NVIDIA H100 80GB HBM3", "GPU-1", "9.0", 81559)
_CHANGES: list[dict[str, Any]] = [
    {"tensorflow": "2.20.0"},
    {"keras": None},
    {"python": "3.12.1"},
    {"onednn": None},
    {"cpu_model": "Another CPU"},
    {"cores_logical": 4},
    {"cores_physical": 2},
    {"gpus": (_CARD,)},
    {"driver": "570.1"},
    {"cuda": "12.5"},
    {"cudnn": "9.1"},
    {"spec": "cpu:4"},
    {"devices": FINGERPRINT.devices[:1]},
    {"intra_op_threads": 2},
    {"inter_op_threads": 0},
    {"tf32": False},
    {"deterministic_ops": True},
]
#: What does not move a speedup.
_NO_MATTER: list[dict[str, Any]] = [
    {"numpy": "1.26.0"},
    {"python": "3.11.12"},
    {"memory_mib": 16000},
    {"operating_system": "Linux-6.2"},
    {"soft_placement": True},
]


@pytest.mark.parametrize("change", _CHANGES, ids=lambda change: next(iter(change)))
def test_what_moves_speedups_makes_another_machine(change: dict[str, Any]) -> None:
    other = replace(FINGERPRINT, **change)
    [difference] = differences(FINGERPRINT, other)
    assert difference.field == next(iter(change))
    assert difference.base != difference.new
    assert str(difference).startswith(f"{difference.field}: {difference.base} in the baseline, {difference.new} now")
    assert machine_key(other) != machine_key(FINGERPRINT)


@pytest.mark.parametrize("change", _NO_MATTER, ids=lambda change: next(iter(change)))
def test_what_does_not_move_speedups_leaves_it_the_same(change: dict[str, Any]) -> None:
    other = replace(FINGERPRINT, **change)
    assert differences(FINGERPRINT, other) == ()
    assert machine_key(other) == machine_key(FINGERPRINT)


def test_another_card_of_the_same_model_is_comparable_and_another_model_is_not() -> None:
    one = replace(FINGERPRINT, gpus=(_CARD,))
    assert differences(one, replace(one, gpus=(replace(_CARD, uuid="GPU-2"),))) == ()
    [difference] = differences(one, replace(one, gpus=(replace(_CARD, name="NVIDIA H200"),)))
    assert "H100" in difference.base
    assert "H200" in difference.new


def test_an_unknown_machine_is_comparable_to_none() -> None:
    for base, new in ((None, FINGERPRINT), (FINGERPRINT, None), (None, None)):
        [difference] = differences(base, new)
        assert difference.field == "fingerprint"
        assert "unknown" in str(difference)


def test_every_field_was_decided_on() -> None:
    decided = {*comparable_facts(FINGERPRINT), *(name for change in _NO_MATTER for name in change)}
    assert decided == {field.name for field in fields(Fingerprint)}


def test_a_key_is_a_name_for_a_folder_that_a_person_can_read() -> None:
    assert re.fullmatch(r"cpu-2-cores-cpu-2-tf2\.21\.0-[0-9a-f]{12}", machine_key(FINGERPRINT))
    card = machine_key(replace(FINGERPRINT, gpus=(_CARD,), spec="@folder/..\\x"))
    assert re.fullmatch(r"nvidia-h100-80gb-hbm3-[a-z0-9.-]+-[0-9a-f]{12}", card)
    assert "/" not in card
