"""``harness profile``, with TensorFlow: what it prints, what it leaves behind, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run

from harness.errors import InvalidRecord
from harness.report.profile import PROFILE_FILE
from harness.report.storage import load_versioned
from harness.speed.timeline.record import PROFILE_SCHEMA_VERSION, Profile

pytestmark = pytest.mark.usefixtures("forked_workers")

PROGRAM = """
import tensorflow as tf

matrix = tf.ones([128, 128])

def towers():
    print("said by the user")
    outputs = []
    for index in range(2):
        with tf.device(f"/CPU:{index}"):
            outputs.append(tf.matmul(matrix, matrix))
    return outputs

step = tf.function(towers)

def nothing():
    return 1

def crooked():
    raise ValueError("the user's own")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_a_users_function_is_profiled_and_everything_is_kept(folder: Path) -> None:
    done = run(folder, "profile", "program.py:step", "--devices", "cpu:2", "--calls", "3", "--report", "kept")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for text in ("CPU:0", "CPU:1", "compute", "overlap: two or more devices compute at once", "3 calls"):
        assert text in done.stdout
    profile = load_versioned(folder / "kept" / PROFILE_FILE, Profile, PROFILE_SCHEMA_VERSION)
    assert profile.calls == 3
    assert [times.device[-5:] for times in profile.times] == ["CPU:0", "CPU:1"]
    assert all(times.compute_ns > 0 for times in profile.times)
    assert profile.unattributed_ops == 0
    assert profile.fingerprint is not None
    assert profile.fingerprint.spec == "cpu:2"
    stored = json.loads((folder / "kept" / "profile.json").read_text())
    assert stored["schema_version"] == 1
    stored["schema_version"] = 99
    (folder / "newer.json").write_text(json.dumps(stored))
    with pytest.raises(InvalidRecord, match="newer"):
        load_versioned(folder / "newer.json", Profile, PROFILE_SCHEMA_VERSION)
    # Rarely TensorFlow names no op of a device's only buffer, and then its device is unknown.
    assert [each.device[-5:] for each in profile.memory] in (["CPU:0", "CPU:1"], ["CPU:0"])
    assert all(each.share_with_line() >= 0.95 and each.peak_bytes > 0 for each in profile.memory)
    said = done.stdout.partition("memory of CPU:")[2].partition("Record: ")[0].splitlines()
    assert len([line for line in said if line.strip()]) <= 10
    assert "buffers of its ops, by TensorFlow's profiler; the CPUs share one memory" in done.stdout
    for name in ("timeline.png", "timeline.svg", "timeline.json", "memory.png", "memory.svg"):
        assert (folder / "kept" / name).stat().st_size > 1000
    page = (folder / "kept" / "profile.html").read_text()
    assert all(text in page for text in ("program.py:step", "What each device spends the time on", "Memory of CPU:0"))
    assert f"Page: {Path('kept') / 'profile.html'}" in done.stdout
    events = json.loads((folder / "kept" / "timeline.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" and event["name"] in ("MatMul", "MatMul_1") for event in events) == 2 * 3
    assert list((folder / "kept" / "tensorboard").rglob("*.xplane.pb"))
    assert "said by the user" in (folder / "kept" / "logs" / "profile.log").read_text()


def test_a_function_that_runs_no_op_is_unknown(folder: Path) -> None:
    done = run(folder, "profile", "program.py:nothing", "--devices", "cpu:1", "--calls", "2")
    assert done.returncode == 3
    assert "no op is known to have run" in done.stderr


def test_what_the_users_function_raises_is_shown(folder: Path) -> None:
    done = run(folder, "profile", "program.py:crooked", "--devices", "cpu:1")
    assert done.returncode == 2
    assert done.stderr.startswith("harness: error: program.py:crooked raised ValueError: the user's own")
    assert "/harness/" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["program.py:step", "--calls", "0"], "--calls 0; accepted"),
        (["program.py:step", "--devices", "cpus:2"], "device spec 'cpus:2'"),
        (["absent.py:f"], "there is no file absent.py"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(folder: Path, arguments: list[str], message: str) -> None:
    done = run(folder, "profile", *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert message in line
    assert not (folder / "harness-report").exists()
