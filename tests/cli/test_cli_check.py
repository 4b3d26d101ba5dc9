"""``harness check``: a script with towers, from nothing to the change that mends it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import run

pytestmark = pytest.mark.usefixtures("forked_workers")

SCRIPT = """
import tensorflow as tf

w = tf.Variable(tf.random.stateless_normal([8, 8], (1, 2)))


def towers(x):
    results = []
    for number, part in enumerate(tf.split(x, 2)):
        with tf.device(f"/CPU:{number}"):
            results.append(tf.tanh(part @ w))
    return tf.concat(results, axis=0)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(towers(x) ** 2)
    w.assign_sub(tape.gradient(loss, w))
    return loss


for number in range(100_000_000):
    step(tf.random.stateless_normal([6, 8], (number, 0)))
"""


def test_a_script_is_checked_and_its_change_passes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run(tmp_path, "check", "train.py")
    assert done.returncode == 1, done.stderr
    assert "devices: CPU:0, CPU:1: the script names no GPU" in done.stdout
    assert "FAIL: Backward ops are not on the devices of their forward ops (train.py:19" in done.stdout
    mend = done.stdout.partition("This change mends it:\n")[2].splitlines()
    assert mend[:5] == [
        "  +import harness",
        "  @@ train.py:15 @@",
        "  +@harness.colocate_gradients",
        "   @tf.function",
        "   def step(x):",
    ]
    assert mend[6].startswith("Speedup ")
    assert mend[5].startswith("With it, PASS: the run on 2 devices matches its own run on CPU:0")
    record = json.loads((tmp_path / "harness-report" / "run.json").read_text())
    assert [result["check"] for result in record["results"]] == ["train.py:step"]
    assert (tmp_path / "harness-report" / "report.html").is_file()

    (tmp_path / "train.py").write_text(
        SCRIPT.replace("@tf.function", "@harness.colocate_gradients\n@tf.function").replace(
            "import tensorflow", "import harness\nimport tensorflow"
        )
    )
    mended = run(tmp_path, "check", "train.py:step", "--devices", "cpu:2", "--no-speed")
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert "This change" not in mended.stdout
    assert "as fast" not in mended.stdout
    assert "harness.verify(step, reference, inputs" in mended.stdout


@pytest.mark.long
def test_cores_stand_in_for_the_gpus_of_a_script_to_measure_the_change(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("/CPU:", "/GPU:"))
    done = run(tmp_path, "check", "train.py", "--devices", "cores:2")
    assert "devices: GPU:0, GPU:1: the script uses 2 GPUs" in done.stdout
    assert "With it, PASS: the run on 2 software GPUs matches its own run on GPU:0" in done.stdout
    assert "Speedup of the step: " in done.stdout, done.stdout
    assert "on 2 CPU cores, each with its own" in done.stdout
    assert "harness.verify(step, reference, inputs" in done.stdout

    (tmp_path / "train.py").write_text(
        SCRIPT.replace("/CPU:", "/GPU:")
        .replace("@tf.function", "@harness.colocate_gradients\n@tf.function")
        .replace("import tensorflow", "import harness\nimport tensorflow")
    )
    mended = run(tmp_path, "check", "train.py", "--devices", "cores:2")
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert re.search(r"\d\.\d\d times as fast .*, on 2 CPU cores", mended.stdout), mended.stdout
    record = json.loads((tmp_path / "harness-report" / "run.json").read_text())
    assert " on one device" in record["results"][0]["scope"][0]
    untimed = run(tmp_path, "check", "train.py", "--devices", "cores:2", "--no-speed")
    assert untimed.returncode == 0, untimed.stdout + untimed.stderr
    assert "times as fast" not in untimed.stdout


def test_what_cannot_be_checked_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("/CPU:", "/device:CPU:1"))
    (tmp_path / "broken.py").write_text("def step(x:\n")
    for arguments, said in {
        ("broken.py",): "broken.py: the script is no valid Python: line 1: ",
        ("train.py:steps",): "train.py:steps: the script defines no function steps",
        ("absent.py",): "there is no file absent.py",
        ("train.txt",): "is not of the form FILE.py:FUNCTION",
        ("train.py:step", "--devices", "cpux:2"): "cpux:2",
        ("train.py:step", "--devices", "cpu:2"): "the step names CPU:10, CPU:11, absent from the devices of cpu:2",
    }.items():
        done = run(tmp_path, "check", *arguments)
        assert done.returncode == 2, done.stdout
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
