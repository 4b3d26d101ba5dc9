"""``harness scale``: rounds over device sets, failures of one of them, and ^C."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from command_line import run, start

from harness.report.scale import load_scale

pytestmark = pytest.mark.usefixtures("forked_workers")

PROGRAM = """
import time
import numpy as np
import tensorflow as tf

def build(devices, scale=1):
    assert len(devices) == scale or scale == 1
    def work():
        with tf.device(devices[0].name):
            return [tf.square(float(number)) for number in range(scale)]
    return work

def only_one(devices):
    if len(devices) > 1:
        raise ValueError("one device is enough")
    return lambda: tf.constant(1.0)

def wrong_on_two(devices):
    return lambda: tf.random.uniform([3]) * 0 + len(devices)

def random_numbers(devices):
    import os
    return lambda: tf.constant(int.from_bytes(os.urandom(3), "big"))

def seeded(devices):
    value = tf.random.uniform([3]) + np.random.rand()
    return lambda: {"value": value, "half": tf.cast(value, tf.bfloat16), "name": tf.constant(["a", "bc"])}

def nothing(devices):
    return lambda: None

def no_callable(devices):
    return 3

def slow_with_two(devices):
    if len(devices) > 1:
        print("sleeping", flush=True)
        time.sleep(600)
    return lambda: tf.constant(1.0)
"""
QUICK = ("--rounds", "2", "--budget", "0.05")
#: A round is enough to compare what two device sets return; whether one returns the same again takes two.
ONCE = ("--rounds", "1", "--budget", "0.05")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_each_device_set_is_measured_in_each_round_and_everything_is_kept(folder: Path) -> None:
    done = run(folder, "scale", "program.py:build", "--devices", "cpu:1,cpu:2", "--weak", *QUICK)
    assert done.returncode == 0, done.stderr
    record = load_scale(folder / "harness-report")
    assert [(point.spec, point.devices, len(point.rounds)) for point in record.points] == [
        ("cpu:1", 1, 2),
        ("cpu:2", 2, 2),
    ]
    assert all(len(each.times_ns) >= 5 for point in record.points for each in point.rounds)
    assert record.mode == "weak"
    assert record.complete
    assert record.fit is not None
    assert record.fit.law == "Gustafson"
    assert record.fit.interval is not None
    assert json.loads((folder / "harness-report" / "scale.json").read_text())["schema_version"] == 1
    assert (folder / "harness-report" / "scale.png").stat().st_size > 1000
    for text in ("round 2 of 2", "efficiency", "serial fraction"):
        assert text in done.stdout


def test_a_device_set_that_fails_is_reported_and_the_others_go_on(folder: Path) -> None:
    done = run(folder, "scale", "program.py:only_one", "--devices", "cpu:2,cpu:1", *ONCE)
    assert done.returncode == 1
    record = load_scale(folder / "harness-report")
    one, two = sorted(record.points, key=lambda point: point.spec)
    assert (len(one.rounds), one.error) == (1, None)
    assert two.rounds == ()
    assert "raised ValueError: one device is enough" in str(two.error)
    assert "error: cpu:2: program.py:only_one raised ValueError" in done.stdout
    assert record.fit is None
    assert "no fit: all measurements are on 1 device" in done.stdout


def test_a_device_set_that_returns_something_else_fails_and_its_times_do_not_count(folder: Path) -> None:
    done = run(folder, "scale", "program.py:wrong_on_two", "--devices", "cpu:1,cpu:2", *ONCE)
    assert done.returncode == 1
    record = load_scale(folder / "harness-report")
    one, two = record.points
    assert (one.wrong, two.wrong, len(two.rounds), two.speedup) == (False, True, 1, None)
    assert "they differ from those of cpu:1" in str(two.error)
    assert record.outputs == "1 of 2 device sets return the same outputs"
    assert record.fit is None
    assert "error: cpu:2: outputs" in done.stdout
    assert not [*(folder / "harness-report" / "logs").glob("outputs-*")]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("seeded", "2 of 2 device sets return the same"),
        ("random_numbers", "on cpu:1 they differ between processes"),
        ("nothing", "there are none; return the computed tensors"),
    ],
)
def test_what_the_device_sets_return_is_compared_where_it_can_be(folder: Path, function: str, words: str) -> None:
    rounds = QUICK if function == "random_numbers" else ONCE
    done = run(folder, "scale", f"program.py:{function}", "--devices", "cpu:1,cpu:2", *rounds)
    assert done.returncode == 0, done.stdout
    assert words in done.stdout


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("no_callable", "returned an object of type int, which cannot be called"),
        ("absent", "the module has no 'absent'"),
    ],
)
def test_a_function_that_does_not_keep_the_contract_is_refused(folder: Path, function: str, message: str) -> None:
    done = run(folder, "scale", f"program.py:{function}", "--devices", "cpu:1", *QUICK)
    assert done.returncode == 2
    assert message in done.stdout


def test_control_c_keeps_what_was_measured(folder: Path) -> None:
    process = start(folder, "scale", "program.py:slow_with_two", "--devices", "cpu:1,cpu:2", "--rounds", "9")
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "cpu:1" in line:
                break
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    record = load_scale(folder / "harness-report")
    assert not record.complete
    assert len(record.points[0].rounds) >= 1
    assert record.points[1].rounds == ()
    assert "INTERRUPTED" in rest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "cpu:1,cpus:2"], "device spec 'cpus:2'"),
        (["--devices", "cpu:1,,cpu:2"], "device specs that differ"),
        (["--devices", "cpu:1,cpu:1"], "device specs that differ"),
        (["--devices", "cluster:a:1,b:2,cluster:c:3,b:x"], "device spec 'cluster:c:3,b:x': port 'x' of host 'b'"),
        (["--devices", "cpu:1", "--rounds", "0"], "--rounds 0"),
        (["--devices", "cpu:1", "--budget", "0"], "--budget 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(folder: Path, arguments: list[str], message: str) -> None:
    done = run(folder, "scale", "program.py:build", *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert message in line
    assert not (folder / "harness-report").exists()


def test_software_gpus_are_measured_and_not_taken_for_gpus(folder: Path) -> None:
    done = run(folder, "scale", "program.py:build", "--devices", "softgpu:1x64,softgpu:2x64", *ONCE)
    assert done.returncode == 0, done.stderr
    record = load_scale(folder / "harness-report")
    assert [(point.spec, point.devices, len(point.rounds)) for point in record.points] == [
        ("softgpu:1x64", 1, 1),
        ("softgpu:2x64", 2, 1),
    ]
    assert "softgpu:1x64, softgpu:2x64: not representative of speed" in " ".join(done.stdout.split())


@pytest.mark.parametrize("target", ["nosuch.py:build", "program.py", "program.py:nosuch"])
def test_a_target_that_is_none_is_told_what_scale_needs(tmp_path: Path, target: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(tmp_path, "scale", target, "--devices", "cpu:1", *ONCE)
    assert done.returncode == 2
    assert "FILE.py:FUNCTION, where FUNCTION(devices) returns a callable without arguments" in (
        done.stderr + done.stdout
    ).replace("\n", " ")
    assert "needs no arguments" not in done.stdout + done.stderr
