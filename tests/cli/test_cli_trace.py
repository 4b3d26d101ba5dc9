"""``harness trace`` and ``harness devices``, with TensorFlow: each run starts a process that imports it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import run

pytestmark = pytest.mark.usefixtures("forked_workers")

PROGRAM = """
import sys
import tensorflow as tf

def spread():
    print("said by the user")
    print("chatter of the user", file=sys.stderr)
    a = tf.ones([4, 3])
    with tf.device("/CPU:1"):
        b = tf.matmul(a, tf.ones([3, 2]))
    with tf.device("/CPU:2"):
        return tf.nn.relu(b)

def crooked():
    return tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))

def nothing():
    return 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_a_users_function_is_shown_per_device_and_its_trace_is_kept(folder: Path) -> None:
    kept = ("--save", "kept.json", "--html", "a/page.html")
    done = run(folder, "trace", "program.py:spread", "--devices", "cpu:3", *kept)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("said by the user\n")
    # What each device did, from the sizes of its tensors, and that a configured one did nothing.
    assert "2 devices work: CPU:1 86%, CPU:2 14% of the work; CPU:0 ran none." in done.stdout
    assert re.search(r"CPU:1\W.*MatMul", done.stdout)
    assert re.search(r"CPU:2\W.*Relu", done.stdout)
    assert "trace: kept.json" in done.stdout
    assert json.loads((folder / "kept.json").read_text())["schema_version"] == 1
    assert "page: a/page.html" in done.stdout
    page = (folder / "a" / "page.html").read_text()
    assert "2 devices work: CPU:1 86%, CPU:2 14% of the work" in page
    assert re.search(r"2 ops in 2 boxes: CPU:1 1, CPU:2 1; \d arrows between devices", page)
    assert "chatter of the user" in (folder / "harness-report" / "logs" / "trace.log").read_text()


def test_an_exception_of_the_users_function_is_shown_with_the_users_frames(folder: Path) -> None:
    done = run(folder, "trace", "program.py:crooked", "--devices", "cpu:1")
    assert done.returncode == 2
    first, *frames = done.stderr.splitlines()
    assert first.startswith("harness: error: program.py:crooked raised InvalidArgumentError: Matrix size-incompatible")
    assert "    return tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))" in frames
    assert "/harness/" not in done.stderr
    assert "site-packages" not in done.stderr
    assert done.stdout == ""


def test_a_function_that_runs_no_op_is_unknown(folder: Path) -> None:
    done = run(folder, "trace", "program.py:nothing", "--devices", "cpu:1")
    assert done.returncode == 3
    assert "executed no op" in done.stderr


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("program.py", "is not of the form FILE.py:FUNCTION"),
        ("absent.py:f", "there is no file absent.py"),
        ("program.txt:f", "is not of the form"),
    ],
)
def test_a_target_that_cannot_be_is_refused_before_anything_starts(folder: Path, target: str, message: str) -> None:
    done = run(folder, "trace", target)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert message in line
    assert not (folder / "harness-report").exists()


def test_the_machine_is_shown_with_the_devices_of_a_spec(tmp_path: Path) -> None:
    done = run(tmp_path, "devices", "--devices", "cpu:3")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for text in ("auto selected", "@cpu-4", "device:CPU:2  logical-cpu", "TensorFlow"):
        assert text in done.stdout
    assert (tmp_path / "harness-report" / "logs" / "devices.log").exists()


def test_devices_that_are_not_there_are_one_clear_line(tmp_path: Path) -> None:
    done = run(tmp_path, "devices", "--devices", "gpu:99")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "'gpu:99' needs 99 real GPUs; available: CPU:0" in line
