"""``harness fit``: a step is measured on a software GPU, and its verdict is the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run

pytestmark = pytest.mark.usefixtures("forked_workers")

PROGRAM = """
import tensorflow as tf

WEIGHT = 256

def rows():
    with tf.device("GPU:0"):
        weight = tf.Variable(tf.ones([WEIGHT, WEIGHT]))
    return (lambda x: tf.tanh(x @ weight) @ weight), (tf.zeros([4096, WEIGHT]),), (weight,)

def wide():
    weight = tf.Variable(tf.ones([WEIGHT, 16384]))
    return (lambda x: tf.reduce_sum(x @ weight, axis=1)), (tf.zeros([4096, WEIGHT]),), (weight,)

def initial():
    layer = tf.keras.layers.Dense(2048)
    layer.build((None, 2048))
    return layer, (tf.zeros([4, 2048]),)

def fixed(): return (lambda x: tf.reshape(x, [64, 2, 2])), (tf.zeros([64, 4]),)

def model():
    made = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
    return made, tf.zeros([16, 4]), None

def losing():
    made, x, y = model()
    made.compile(loss="mse")
    return made, x, y

def huge(): return (lambda x: x), (tf.zeros([1]) + tf.zeros([2**28, 1]),)

def number(): return 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


@pytest.mark.parametrize("predict", [False, True])
def test_a_step_fits_into_twice_its_peak_and_not_into_half_of_it(folder: Path, predict: bool) -> None:
    options = ["--predict"] if predict else []
    done = run(folder, "fit", "train.py:rows", "--json", *options)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert [peak["rows"] for peak in record["peaks"]] == [512, 1024, 2048, *([] if predict else [4096])]
    assert record["measured"] is not predict
    least, most = record["interval_bytes"]
    # The products before and after tanh, which may be one place, and the weight; the batch is held between steps.
    assert 2 * 4096 * 256 * 4 <= least < most <= (6 if predict else 5) * 4096 * 256 * 4
    for size, code, sign in ((2 * most, 0, "PASS: fits"), (least / 2, 1, "FAIL: does not fit")):
        done = run(folder, "fit", "train.py:rows", "--memory-per-device", f"{int(size)} B", *options)
        assert done.returncode == code, done.stderr
        assert sign in done.stdout
        assert ("devices:" in done.stdout) is bool(code)
        assert max(map(len, done.stdout.splitlines())) <= 110


def test_what_this_machine_cannot_hold_is_predicted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cli.fit._free_mib", lambda: 256)  # the product of all rows takes that much by itself
    done = run(folder, "fit", "train.py:wide", "--memory-per-device", "200MiB")
    assert done.returncode == 1, done.stderr
    assert "predicted from 512" in done.stdout
    least, most = (float(part.split()[0]) for part in done.stdout.splitlines()[1].split("device")[1].split(" to "))
    assert least < 256 + 16 + 4 < most
    assert "FAIL: does not fit" in done.stdout


def test_what_building_takes_counts(folder: Path) -> None:
    done = run(folder, "fit", "train.py:initial", "--memory-per-device", "24MiB")
    assert done.returncode == 1, done.stderr
    assert "to build it" in done.stdout
    assert "to build the model alone takes more than one device has" in done.stdout


def test_a_step_that_needs_its_whole_batch_is_measured_with_it(folder: Path) -> None:
    done = run(folder, "fit", "train.py:fixed", "--memory-per-device", "1MiB")
    assert done.returncode == 0, done.stderr
    assert "8 rows: not measured: " in done.stderr
    assert "PASS: fits" in done.stdout
    assert run(folder, "fit", "train.py:fixed", "--devices", "2").returncode == 2


def test_a_model_without_a_loss_needs_no_y(folder: Path) -> None:
    done = run(folder, "fit", "train.py:model")
    assert done.returncode == 0, done.stderr
    assert "a forward pass, 16 rows" in done.stdout


def test_what_cannot_be_built_here_fits_into_nothing_smaller(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cli.fit._free_mib", lambda: 512)
    for options, code, said in ((("--memory-per-device", "64MiB"), 1, "FAIL: does not fit"), ((), 3, "UNKNOWN: ")):
        done = run(folder, "fit", "train.py:huge", *options)
        assert done.returncode == code, done.stderr
        assert said in done.stderr
        assert "to build it takes more than the 512 MiB" in done.stderr


def test_bad_input_is_one_line(folder: Path) -> None:
    for arguments, words in (
        (("train.py:number",), "returned an object of type int"),
        (("train.py:losing",), "the model is compiled with a loss, but y is None"),
        (("train.py:rows", "--memory-per-device", "16XB"), "size '16XB' is not valid"),
        (("train.py:rows", "--devices", "0"), "--devices 0; accepted: 1 or more"),
        (("train.py:rows", "--batch", "0"), "--batch 0; accepted: 1 or more"),
    ):
        done = run(folder, "fit", *arguments)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
