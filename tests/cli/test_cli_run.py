"""``harness run``: tasks on devices of their own, queues, failures of one of them, and ^C."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from command_line import run, start
from ended_processes import is_gone, wait_until

from harness.devices.described.order import uuid_of
from harness.parallel.task_processes import TASKS_SCHEMA_VERSION, TasksRecord
from harness.records import Verdict
from harness.report.storage import load_versioned
from harness.report.tasks import TASKS_FILE

pytest_plugins = ["waiting_clock"]

SEES = """
import os, sys
print("arguments", sys.argv[1:], __name__)
print("cpus", sorted(os.sched_getaffinity(0)), os.environ["CUDA_VISIBLE_DEVICES"], os.environ["TF_NUM_INTRAOP_THREADS"])
import beside
"""
TRAINS = """
import tensorflow as tf
assert tf.config.threading.get_intra_op_parallelism_threads() in (0, 1)
print("sum", float(tf.reduce_sum(tf.ones((3, 4)))))
"""
ON_GPU = """
import tensorflow as tf
with tf.device("/GPU:0"):
    product = tf.matmul(tf.ones((3, 4)), tf.ones((4, 3)))
print(len(tf.config.list_physical_devices("GPU")), "GPU", product.device, float(product[0, 0]))
"""
MACHINE = """
schema_version = 1
[cards]
count = 2
model = "NVIDIA H100 80GB HBM3"
software_mib = 64
[[fault]]
kind = "wrong-arithmetic"
card = 1
dtype = "float32"
relative_error = 0.0078125
"""
LAST = """
import os
open("last", "w").write(str(os.getpid()))
"""
#: It begins to hang when the last of the others has been waited for.
HANGS = """
import os, pathlib, subprocess, sys, threading, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
def wait_for_ever():
    if begun := os.environ.get("PLANTED_BEGUN"):
        last = pathlib.Path("last")
        while not (last.exists() and last.read_text()) or pathlib.Path("/proc", last.read_text()).exists():
            time.sleep(0.1)
        pathlib.Path(begun).write_text(str(os.getpid()))
    threading.Event().wait()
wait_for_ever()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "sees.py": SEES,
        "beside.py": "print('imported from beside')",
        "trains.py": TRAINS,
        "on_gpu.py": ON_GPU,
        "hangs.py": HANGS,
        "last.py": LAST,
        "fails.py": "import sys; sys.exit(7)",
        "raises.py": "raise RuntimeError('no good')",
        "crashes.py": "import os; os.abort()",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def _tasks(folder: Path) -> TasksRecord:
    return load_versioned(folder / "harness-report" / TASKS_FILE, TasksRecord, TASKS_SCHEMA_VERSION)


def test_each_task_has_its_device_and_more_tasks_than_devices_wait(folder: Path) -> None:
    done = run(folder, "run", "--devices", "cpu:2", "sees.py --rate 0.1 'two words'", "trains.py", "sees.py")
    assert done.returncode == 0, (done.stdout, done.stderr)
    record = _tasks(folder)
    assert [result.exit_code for result in record.results] == [0, 0, 0]
    by_number = {result.number: result for result in record.results}
    log = Path(folder, by_number[0].log).read_text()
    cpus = sorted(os.sched_getaffinity(0))
    assert "arguments ['--rate', '0.1', 'two words'] __main__" in log
    assert f"cpus [{cpus[0]}] -1 1" in log
    assert "imported from beside" in log
    assert "sum 12.0" in Path(folder, by_number[1].log).read_text()
    first = min(by_number[0].started_s + by_number[0].elapsed_s, by_number[1].started_s + by_number[1].elapsed_s)
    assert by_number[2].started_s >= first - 0.01
    assert "3 tasks ran on 2 devices of cpu:2; all succeeded" in done.stdout


def test_each_task_has_a_software_gpu_and_no_other(folder: Path) -> None:
    done = run(folder, "run", "--devices", "softgpu:2x512", "on_gpu.py")
    assert done.returncode == 0, (done.stdout, done.stderr)
    (result,) = _tasks(folder).results
    assert result.device == "GPU:0 (software GPU, 512 MiB)"
    log = Path(folder, result.log).read_text()
    assert "1 GPU /job:localhost/replica:0/task:0/device:GPU:0 4.0" in log


def test_each_task_has_one_gpu_of_a_described_machine_with_its_faults(folder: Path) -> None:
    (folder / "machine.toml").write_text(MACHINE)
    done = run(folder, "run", "--devices", "softgpu:machine.toml", "on_gpu.py", "on_gpu.py")
    assert done.returncode == 0, (done.stdout, done.stderr)
    for result in _tasks(folder).results:
        assert uuid_of(result.number) in result.device
        log = Path(folder, result.log).read_text()
        assert f"1 GPU /job:localhost/replica:0/task:0/device:GPU:0 {[4.0, 4.03125][result.number]}" in log


@pytest.mark.usefixtures("begun")
def test_a_task_that_fails_crashes_or_hangs_is_reported_alone(folder: Path) -> None:
    scripts = ("hangs.py", "fails.py", "raises.py", "crashes.py", "last.py")
    done = run(folder, "run", "--devices", "cpu:2", "--timeout", "600", *scripts)
    assert done.returncode == 1, (done.stdout, done.stderr)
    results = {result.command: result for result in _tasks(folder).results}
    assert (results["fails.py"].exit_code, results["fails.py"].message) == (7, "exit code 7")
    assert results["raises.py"].exit_code == 1
    assert results["raises.py"].message == "exit code 1: RuntimeError: no good"
    assert "RuntimeError: no good" in Path(folder, results["raises.py"].log).read_text()
    assert results["crashes.py"].exit_code is None
    assert "killed by SIGABRT, at " in results["crashes.py"].message
    assert "crashes.py:1 in <module>" in results["crashes.py"].message
    assert results["hangs.py"].message.startswith("took longer than 600 s and was ended, at ")
    assert "in wait_for_ever" in Path(folder, str(results["hangs.py"].stacks)).read_text()
    assert results["last.py"].verdict is Verdict.PASS
    child = int(Path(folder, results["hangs.py"].log).read_text().split()[1])
    assert wait_until(lambda: is_gone(child))
    assert "1 succeeded, 4 failed" in done.stdout


def test_ctrl_c_ends_all_tasks_and_keeps_what_is_known(folder: Path) -> None:
    process = start(folder, "run", "--devices", "cpu:2", "fails.py", "hangs.py", "hangs.py")
    logs = [folder / "harness-report" / "logs" / f"task-{number}.log" for number in (1, 2)]
    assert wait_until(lambda: all(log.exists() and "\n" in log.read_text() for log in logs))
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=600)
    assert process.returncode == 130
    record = _tasks(folder)
    assert not record.complete
    assert record.results[0].message == "exit code 7"
    assert all("stopped with the whole run" in result.message for result in record.results[1:])
    assert "INTERRUPTED" in stdout
    children = [int(log.read_text().split()[1]) for log in logs]
    assert wait_until(lambda: all(map(is_gone, children)))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("gone.py",), "script gone.py: no such file; give the path of a Python script"),
        (("fails.py", "--timeout", "0"), "--timeout 0; accepted: a number of seconds above 0"),
        (("fails.py", "--devices", "gpu"), "needs 1 GPU whose UUID the driver reports; available: none"),
        (("fails.py", "--devices", "gpu:2x100"), "each task is a process that needs a device of its own"),
        (
            ("fails.py", "--devices", "cluster:a:1"),
            "tasks run on this host only",
        ),
        (("fails.py", "--devices", "cluster:a"), "host 'a' has no port"),
        (("fails.py", "--devices", "cpus"), "device spec 'cpus': unknown"),
        (("'", "--devices", "cpu:1"), "No closing quotation"),
    ],
)
def test_bad_input_is_one_clear_line(folder: Path, arguments: tuple[str, ...], why: str) -> None:
    done = run(folder, "run", *arguments)
    assert done.returncode == (3 if "UUID" in why else 2), done.stderr
    assert why in done.stderr
    assert "Traceback" not in done.stderr
