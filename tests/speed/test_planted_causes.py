"""Planted programs are profiled for real: each cause is named, a clean twin has none, and each op has its device."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

_CALLS = 8
#: Each planted program: the kind of its cause, and words of the sentence.
CAUSES = (
    ("eager", "towers-serialised", "one Python thread starts the ops one by one"),
    ("read_between", "towers-serialised", "Python reads 2 values per call"),
    ("one_after_the_other", "towers-serialised", "control_dependencies"),
    ("in turns", "dependent-work", "each needs the results of another"),
    ("in turns, eager", "dependent-work", "each needs the results of another"),
    ("backward on one", "backward-on-one-device", "gradient ops of a call ran on CPU:0"),
    ("traced_anew", "retracing", "`scaled` was traced again in 8 of 8 calls"),
    ("slow input", "input-bound", "calls wait for the next batch"),
    ("little_work", "too-little-work", "all devices are idle while"),
    ("uneven", "uneven-work", "CPU:0 has more of the batch, or is slower"),
)
#: Other work on the machine can make one device seem to do all the computing. A program is then profiled again.
_TRIES = 4


def is_product(name: str) -> bool:
    """Whether a span is a product, and not the reading of a variable for one, or a copy."""
    return name.rpartition("/")[2].startswith("MatMul")


def profile_all() -> None:
    """Profile every planted program, and print what the tests look at, as one line of JSON."""
    import tempfile
    from pathlib import Path

    from planted_programs import Towers

    import harness
    from harness.speed.timeline.profiling import profile_calls

    devices = harness.configure("cpu:2")
    towers = Towers(devices)
    programs = {
        "side_by_side": towers.side_by_side(),
        "eager": towers.eager(),
        "read_between": towers.read_between(),
        "one_after_the_other": towers.one_after_the_other(),
        "in turns": towers.in_turns(),
        "in turns, eager": towers.in_turns(graph=False),
        "backward on one": towers.backward(beside=False),
        "backward beside": towers.backward(beside=True),
        "traced_anew": towers.traced_anew(),
        "slow input": towers.slow_input(slow=True),
        "fast input": towers.slow_input(slow=False),
        "little_work": towers.little_work(),
        "uneven": towers.uneven(),
    }
    seen, wanted = {}, {name: kind for name, kind, _ in CAUSES}
    with tempfile.TemporaryDirectory() as folder:
        for name, program in programs.items():
            for _ in range(_TRIES):
                looked = profile_calls(program, devices=devices, calls=_CALLS, folder=Path(folder) / "profile")
                profile = looked.profile
                if wanted.get(name) in (None, *(cause.kind for cause in profile.causes)):
                    break
            seen[name] = {
                "causes": {cause.kind: cause.sentence for cause in profile.causes},
                "listed": [each.listed for each in profile.times],
                "compute_ns": [each.compute_ns for each in profile.times],
                "gradient_ops": [each.gradient_ops for each in profile.times],
                "adds_up": [each.busy_ns + each.host_ns + each.waiting_ns == profile.wall_ns for each in profile.times],
                "unattributed": [span.name for span in looked.spans if span.device is None and span.kind == "compute"],
                "matmuls": [
                    sum(
                        "MatMul" in span.name and "Read" not in span.name and span.device == each
                        for span in looked.spans
                    )
                    for each in devices.names
                ],
                "calls": profile.calls,
                "overlap_share": profile.overlap_share,
                "reads": profile.host.reads,
            }
    print(json.dumps(seen))


@pytest.fixture(scope="module")
def process_of_module() -> dict[str, Any]:
    return {}


@pytest.fixture
def seen(
    process_of_module: dict[str, Any], fresh_process: Callable[..., subprocess.CompletedProcess[str]]
) -> dict[str, Any]:
    """What was seen of each program. All are profiled in one process, once."""
    if not process_of_module:
        process_of_module.update(json.loads(fresh_process(profile_all).stdout.splitlines()[-1]))
    return process_of_module


@pytest.mark.parametrize(("program", "kind", "words"), CAUSES)
def test_each_planted_cause_is_named(seen: dict[str, Any], program: str, kind: str, words: str) -> None:
    assert words in seen[program]["causes"].get(kind, ""), seen[program]


@pytest.mark.parametrize(
    ("program", "kinds"),
    [
        # Whether two threads really ran at once is the machine's affair, so that it is no matter of these tests.
        ("in turns", {"towers-serialised"}),
        ("in turns, eager", {"towers-serialised"}),
        *((name, {"dependent-work"}) for name in ("eager", "read_between", "one_after_the_other", "backward beside")),
        (
            "side_by_side",
            {"uneven-work", "dependent-work", "backward-on-one-device", "host-copies", "retracing", "input-bound"},
        ),
        ("backward beside", {"uneven-work", "backward-on-one-device", "host-copies", "retracing", "input-bound"}),
        ("fast input", {"backward-on-one-device", "host-copies", "retracing", "input-bound"}),
    ],
)
def test_a_clean_twin_has_no_such_cause(seen: dict[str, Any], program: str, kinds: set[str]) -> None:
    assert not kinds & set(seen[program]["causes"])


@pytest.mark.parametrize(
    "program",
    [
        "side_by_side",
        "eager",
        "read_between",
        "one_after_the_other",
        "backward on one",
        "backward beside",
        "slow input",
    ],
)
def test_every_op_of_a_program_is_known_to_have_run_on_its_device(seen: dict[str, Any], program: str) -> None:
    assert seen[program]["unattributed"] == []
    assert min(seen[program]["compute_ns"]) > 0
    assert all(seen[program]["listed"])


def test_the_products_of_each_tower_are_counted_on_its_own_device(seen: dict[str, Any]) -> None:
    """Four a tower and call, forward; two more each in the backward pass, and the counts are exact."""
    for program in ("side_by_side", "eager", "one_after_the_other"):
        assert seen[program]["matmuls"] == [_CALLS * 4, _CALLS * 4], program
    forward = _CALLS * 4
    on_zero, on_one = seen["backward on one"]["matmuls"]
    assert (on_one, on_zero) == (forward, forward + 2 * 2 * forward)
    assert seen["backward beside"]["matmuls"] == [3 * forward, 3 * forward]


def test_what_each_device_does_and_waits_for_adds_up(seen: dict[str, Any]) -> None:
    for program, found in seen.items():
        assert all(found["adds_up"]), program


def test_towers_that_cannot_overlap_do_not(seen: dict[str, Any]) -> None:
    for program in ("eager", "read_between", "one_after_the_other"):
        assert seen[program]["overlap_share"] < 0.01, program


def test_gradient_ops_are_counted_where_they_ran(seen: dict[str, Any]) -> None:
    assert seen["backward on one"]["gradient_ops"][1] == 0
    assert min(seen["backward beside"]["gradient_ops"]) > 0
    assert seen["read_between"]["reads"] == 2 * seen["read_between"]["calls"]
