"""``harness.advise``: the ways to run a program are tried in this process, and the record is shown in notebooks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

import harness
from harness.advice.record import Way
from harness.advice.script import Facts, Script, Source
from harness.advice.trial import Trial
from harness.devices.device import Devices
from harness.errors import InvalidTarget, UsageError
from harness.speed.record import DeviceMemory, Interval

pytestmark = pytest.mark.usefixtures("forked_workers")

FreshProcess = Callable[..., CompletedProcess[str]]


def advise_twice() -> None:
    """Advise on a model with all variants, stop another trial halfway, and print what came out as a line of JSON."""
    import random

    import keras
    import numpy as np

    from harness.advice import trial

    def build() -> tuple[Any, ...]:
        # The same numbers in each call, for the seed is set before.
        x = np.random.standard_normal((8, 6)).astype("float32")  # noqa: NPY002
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])
        model.compile(optimizer="sgd", loss="mse")
        return model, x, x[:, :3]

    def rows() -> tuple[Any, ...]:
        return (lambda x: x * 2.0), (np.ones((8, 3), "float32"),)

    def stop(line: str) -> None:
        if "make_parallel: verifying" in line:
            raise KeyboardInterrupt

    for option, value in {"_REACH": 1e9, "_VARIANTS_S": 1e9, "_MICROBATCHES": (4, 2)}.items():
        setattr(trial, option, value)
    harness.configure("cpu:3")
    random.seed(7)
    state = random.getstate()
    lines: list[str] = []
    devices = harness.configure("cpu:3")[:2]
    found = harness.advise(build, devices=devices, budget_s=0.05, progress=lines.append)
    restored = random.getstate() == state
    stopped = harness.advise(rows, devices=devices, budget_s=0.05, progress=stop)
    refused = ""
    try:
        harness.advise(lambda: "model", devices=devices)
    except InvalidTarget as error:
        refused = str(error)
    shown = {"found": dataclasses.asdict(found), "html": found._repr_html_(), "repr": repr(found), "lines": lines}
    rest = {"restored": restored, "refused": refused, "script": found.script, "stopped": dataclasses.asdict(stopped)}
    print(json.dumps(shown | rest))


def test_a_function_of_this_process_is_advised_on(fresh_process: FreshProcess) -> None:
    seen = json.loads(fresh_process(advise_twice).stdout.splitlines()[-1])
    found = seen["found"]
    assert {way["name"]: way["judgement"] for way in found["ways"]} == {
        "one device": "baseline",
        "make_parallel": "proved",
        "MirroredStrategy": "verified",
        "MirroredStrategy with ReductionToOneDevice": "verified",
        "pipeline with 4 micro-batches": "proved",
        "pipeline with 2 micro-batches": "proved",
    }
    assert all(way["time_ns"] > 0 for way in found["ways"])
    assert "cross_device_ops=tf.distribute.ReductionToOneDevice()" in found["ways"][3]["code"]
    assert "microbatches=2)" in found["ways"][5]["code"]
    assert (found["target"], found["spec"], found["complete"]) == ("build", "cpu:3[:2]", True)
    assert seen["script"].startswith("import harness\n")
    assert 'devices = harness.configure("cpu:3")[:2]\n' in seen["script"]
    assert "import build" not in seen["script"]
    assert seen["repr"] == f"<Advice {found['recommendation']}>"
    assert "pipeline with 2 micro-batches</td>" in seen["html"]
    assert any("make_parallel: proved; timing" in line for line in seen["lines"])
    assert seen["restored"]
    assert seen["refused"].startswith("<lambda>: returned an object of type str; accepted: ")
    stopped = seen["stopped"]
    assert ([way["name"] for way in stopped["ways"]], stopped["complete"]) == (["one device"], False)
    assert stopped["recommendation"] == "Stay on one device (CPU:0): no other way was timed."


def advise_on_rounding() -> None:
    """Advise on programs whose results differ by rounding or by random numbers, and on one that is wrong."""
    import keras
    import numpy as np
    import tensorflow as tf

    devices = harness.configure("cpu:2")
    x = np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8)
    sizes, drawn = iter(range(8, 0, -1)), np.random.default_rng(0)
    coarse = tf.constant(x * 0.37, tf.bfloat16)

    def unseeded() -> tuple[Any, ...]:
        weight = tf.Variable(np.random.default_rng().standard_normal((8, 8)).astype("float32"))
        return (lambda x: tf.tanh(x @ weight)), (x,), (weight,)

    def sixteen_bits() -> tuple[Any, ...]:
        return (lambda x: tf.cast(tf.tanh(tf.cast(x, tf.bfloat16) @ coarse), tf.float32)), (x,)

    def staged() -> tuple[Any, ...]:
        layers = [keras.layers.Dense(32, dtype="mixed_bfloat16") for _ in range(3)]
        model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(4, dtype="float32")])
        model.compile(optimizer="adam", loss="mse")
        return model, drawn.standard_normal((8, 8)).astype("float32"), x[:, :4]

    def over_rows() -> tuple[Any, ...]:
        return (lambda x: tf.cumsum(x, 0)), (x,)

    def shrinking() -> tuple[Any, ...]:
        return (lambda x: x * 2.0), (x[: next(sizes)],)

    for build in (unseeded, sixteen_bits, staged, over_rows, shrinking):
        found = harness.advise(build, devices=devices, budget_s=0.05)
        print(build.__name__, json.dumps({way.name: [way.judgement, way.reason] for way in found.ways}))


def test_rounding_and_random_numbers_make_no_way_wrong(fresh_process: FreshProcess) -> None:
    lines = fresh_process(advise_on_rounding).stdout.splitlines()
    found = {name: json.loads(ways) for name, ways in (line.split(" ", 1) for line in lines if "{" in line)}
    assert found["unseeded"]["make_parallel"][0] == "proved"
    assert found["sixteen_bits"]["make_parallel"][0] in ("proved", "verified")
    assert not [way for way in found["staged"].values() if way[0] == "wrong"]
    assert found["over_rows"]["make_parallel"][0] == "wrong"
    assert found["shrinking"]["make_parallel"] == [
        "not comparable",
        "raises ValueError: build returned 6 rows now, and 7 before",
    ]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"build": 3}, InvalidTarget, "3: is of type int; accepted: .*where FUNCTION\\(\\) returns"),
        ({"build": "absent.py:build"}, InvalidTarget, "there is no file absent.py"),
        ({"batch": 0}, UsageError, "batch=0; accepted: None, or a whole number of 1 or more"),
        ({"batch": "8"}, UsageError, "batch='8'; accepted: "),
        ({"budget_s": 0.0}, UsageError, "budget_s=0.0; accepted: a number of seconds above 0"),
        ({"budget_s": float("nan")}, UsageError, "budget_s=nan; accepted: "),
        ({"devices": 2}, UsageError, "devices=2; accepted: what harness.configure returned"),
        ({"devices": "cpux"}, harness.InvalidSpec, "cpux"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type, said: str) -> None:
    given: dict[str, Any] = {"build": lambda: None, **arguments}
    with pytest.raises(error, match=said):
        harness.advise(**given)


def a_trial(monkeypatch: pytest.MonkeyPatch, upper: float, judgement: str = "proved") -> tuple[Trial, list[str]]:
    """A trial whose ways take no time, and the names of those that were tried."""
    made, tried = object.__new__(Trial), list[str]()
    made._began, made._best = 0.0, 2.0

    def try_one(name: str, _: object) -> Way:
        tried.append(name)
        right: Any = judgement
        return Way(name, ("GPU:0",), right, "proved", 1.0, 1.0, Interval(upper - 0.1, upper - 0.2, upper, 0.95))

    monkeypatch.setattr(made, "_tried", try_one)
    return made, tried


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("harness.advice.trial.time.monotonic", lambda: now[0])
    return now


def test_variants_are_tried_where_they_may_come_near_the_best_way(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float]
) -> None:
    ways: dict[str, Any] = dict.fromkeys(["pipeline with 4", "pipeline with 2", "pipeline with 8"])
    near, tried = a_trial(monkeypatch, upper=1.5)
    assert [way.judgement for way in near._variants(ways)] == ["proved"] * 3
    assert tried == list(ways)
    far, tried = a_trial(monkeypatch, upper=1.2)
    (only,) = far._variants(ways)
    assert tried == ["pipeline with 4"]
    assert only.reason == "proved; far from the best way, so these were not tried: 2, 8"
    wrong, tried = a_trial(monkeypatch, upper=1.5, judgement="wrong")
    assert [way.reason for way in wrong._variants(ways)] == ["proved"]
    assert tried == ["pipeline with 4"]
    slow, tried = a_trial(monkeypatch, upper=1.5)
    seconds[0] = 1e6
    assert [way.judgement for way in slow._variants(ways)] == ["proved", "not comparable", "not comparable"]
    assert tried == ["pipeline with 4"]


def test_a_way_that_does_not_fit_is_no_measure_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def best(memory_bytes: int | None, too_large: bool = False, known: bool = True) -> float:
        made = object.__new__(Trial)
        made.facts, made.say = Facts(Source("build", "train"), "softgpu:2", "function"), lambda text: None
        made.drawing, made.devices, made._initial, made._best = "", Devices([], spec=""), [], 0.0
        made.memory_bytes, made._too_large = memory_bytes, too_large
        peak = DeviceMemory("GPU:0", 200 << 20, "")
        right = Way("pipeline", ("GPU:0",), "proved", speedup=Interval(2.0, 1.9, 2.1, 0.95), memory=(peak,) * known)
        monkeypatch.setattr(made, "_timed", lambda way, script: right)
        script = Script("", "", "", "")
        assert made._tried("pipeline", lambda way: (right, script)) is right
        return made._best

    assert best(None) == best(300 << 20) == 1.9
    assert best(300 << 20, too_large=True) == best(100 << 20, known=False) == 1.9
    assert best(100 << 20) == best(100 << 20, too_large=True, known=False) == 0.0


def test_algorithms_of_mirrored_strategy_are_those_that_differ_on_the_devices() -> None:
    from harness.devices.device import Device, Devices

    def reductions(name: str, kind: Any) -> list[str]:
        made = object.__new__(Trial)
        made.devices = Devices([Device(f"/job:localhost/replica:0/task:0/device:{name}", kind, "")], spec="")
        return made._reductions()

    assert reductions("CPU:0", "logical-cpu") == ["ReductionToOneDevice"]
    assert reductions("GPU:0", "software-gpu") == [
        "ReductionToOneDevice",
        "HierarchicalCopyAllReduce",
    ]
    assert reductions("GPU:0", "gpu")[-1] == "NcclAllReduce"
