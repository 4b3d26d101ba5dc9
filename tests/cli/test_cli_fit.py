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
    assert 2 * 4096 * 256 * 4 <= least < most <= 5 * 4096 * 256 * 4
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


def test_bad_input_is_one_line(folder: Path) -> None:
    for arguments, words in (
        (("train.py:number",), "returned an object of type int"),
        (("train.py:rows", "--memory-per-device", "16XB"), "size '16XB' is not valid"),
        (("train.py:rows", "--devices", "0"), "--devices 0; accepted: 1 or more"),
        (("train.py:rows", "--batch", "0"), "--batch 0; accepted: 1 or more"),
    ):
        done = run(folder, "fit", *arguments)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
