"""What a process left behind."""

from __future__ import annotations

from pathlib import Path

from harness.runner.job import WorkerFiles
from harness.runner.postmortem import LOG_LINES, innermost, remains

FATAL = """Fatal Python error: Aborted

Thread 0x00007f1 (most recent call first):
  File "/lib/threading.py", line 1 in wait
  File "/lib/threading.py", line 2 in run

Current thread 0x00007f2 (most recent call first):
  File "/home/user/my model.py", line 43 in crash
  File "/lib/runner.py", line 5 in main
"""
DUMP = """Thread 0x00007f1 (most recent call first):
  File "/lib/threading.py", line 1 in wait

Thread 0x00007f2 (most recent call first):
  File "/home/user/model.py", line 7 in loop
"""


def test_the_place_of_a_crash_is_that_of_the_current_thread() -> None:
    assert innermost(FATAL) == "/home/user/my model.py:43 in crash"
    first = FATAL.replace("Current thread", "Other thread").replace("Thread 0x00007f1", "Current thread 0x00007f1")
    assert innermost(first) == "/lib/threading.py:1 in wait"


def test_the_place_of_a_dump_of_all_threads_is_that_of_the_last_which_is_the_main_one() -> None:
    assert innermost(DUMP) == "/home/user/model.py:7 in loop"


def test_without_stacks_there_is_no_place() -> None:
    assert innermost("") is None
    assert innermost("Segmentation fault") is None
    assert innermost("Thread 0x1 (most recent call first):\n  <no Python frame>\n") is None


def test_remains_hold_the_stacks_and_the_end_of_the_log(tmp_path: Path) -> None:
    files = WorkerFiles.create(tmp_path, "worker")
    files.stacks.write_text(DUMP)
    files.log.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(LOG_LINES + 40)))
    text = remains(files)
    assert "in loop" in text
    assert f"line {LOG_LINES + 39} " in text
    assert "line 39 " not in text
    assert "line 40 " in text


def test_an_empty_log_is_said_to_be_empty(tmp_path: Path) -> None:
    files = WorkerFiles.create(tmp_path, "worker")
    assert "is empty" in remains(files)
