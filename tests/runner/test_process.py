"""A worker process that is left alone by its parent, or gets no job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import forks
import pytest

from harness.errors import RefusedByWorker, ReportError, WorkerFailed
from harness.runner.ask import ask
from harness.runner.job import Job, WorkerFiles
from harness.runner.messages import Answer
from harness.runner.process import WorkerProcess
from harness.runner.worker import Send

pytest_plugins = ["waiting_clock"]


def answers(arguments: dict[str, object], send: Send) -> None:
    send(Answer({"got": arguments["text"]}))


def refuses(arguments: dict[str, object], send: Send) -> None:
    raise ReportError("/there", "it is full")


def crashes(arguments: dict[str, object], send: Send) -> None:
    os.abort()


def hangs(arguments: dict[str, object], send: Send) -> None:
    if file := os.environ.get("PLANTED_BEGUN"):
        Path(file).write_text(str(os.getpid()))
    time.sleep(600)


def hangs_in_threads(arguments: dict[str, object], send: Send) -> None:
    """Have stacks that are long to write."""

    def deep(frames: int) -> None:
        if frames > 1:
            deep(frames - 1)
        else:
            ready.release()
            time.sleep(600)

    ready = threading.Semaphore(0)
    for _ in range(90):
        threading.Thread(target=deep, args=(50,), daemon=True).start()
        ready.acquire()
    send(Answer({}))
    time.sleep(600)


def raises(arguments: dict[str, object], send: Send) -> None:
    raise ZeroDivisionError("planted")


def says_nothing(arguments: dict[str, object], send: Send) -> None:
    return


def holds_the_lock(arguments: dict[str, object], send: Send) -> None:
    """Busy in C code with Python's lock held: no other thread of the process can run."""
    Path(str(arguments["begun"])).touch()
    sum(range(10**12))


def job(task: str, limit_s: float | None = None, **arguments: object) -> Job:
    return Job(f"{__name__}:{task}", dict(arguments), limit_s)


@pytest.fixture
def files(tmp_path: Path) -> WorkerFiles:
    return WorkerFiles.create(tmp_path, "a-worker")


def test_an_answer_comes_back(files: WorkerFiles) -> None:
    assert ask(job("answers", text="grüße\n[bold]"), files, limit_s=300) == {"got": "grüße\n[bold]"}
    assert not files.stacks.exists()


def test_an_error_of_the_harness_comes_back_as_one(files: WorkerFiles) -> None:
    with pytest.raises(RefusedByWorker, match="it is full") as caught:
        ask(job("refuses"), files, limit_s=300)
    assert caught.value.error == "ReportError"


def test_a_crash_is_told_with_the_place_and_the_stacks(files: WorkerFiles) -> None:
    with pytest.raises(WorkerFailed, match=r"killed by SIGABRT, at .* in crashes") as caught:
        ask(job("crashes"), files, limit_s=300)
    assert "Fatal Python error" in caught.value.details


@pytest.mark.usefixtures("begun")
def test_a_hang_is_told_with_the_place(files: WorkerFiles) -> None:
    with forks.forking(), pytest.raises(WorkerFailed, match=r"timed out after 60 s, at .* in hangs"):
        ask(job("hangs"), files, limit_s=60)


def test_stacks_are_waited_for_until_they_are_whole(files: WorkerFiles) -> None:
    def hold_up() -> None:
        """Stop the process while it writes, as a busy machine does."""
        while not files.stacks.stat().st_size:
            pass
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(worker.pid, signal.SIGCONT)

    with forks.forking(), WorkerProcess(job("hangs_in_threads"), files) as worker:
        assert isinstance(worker.receive(300), Answer)
        held_up = threading.Thread(target=hold_up)
        held_up.start()
        worker.ask_for_stacks()
        stacks = files.stacks.read_text()
        held_up.join()
    assert stacks.count(" in deep\n") == 90 * 50
    assert " in hangs_in_threads\n" in stacks, "the main thread comes last"


def test_a_process_that_does_not_write_its_stacks_is_not_waited_for_long(files: WorkerFiles) -> None:
    with forks.forking(), WorkerProcess(job("answers", text=""), files) as worker:
        os.kill(worker.pid, signal.SIGSTOP)
        worker.ask_for_stacks(limit_s=0.1)
    with forks.forking(), WorkerProcess(job("answers", text=""), files) as worker:
        assert worker.wait_ended(300) == "exit code 0"
        worker.ask_for_stacks(limit_s=300)


def test_any_other_error_is_told_with_its_traceback(files: WorkerFiles) -> None:
    with pytest.raises(WorkerFailed, match="exit code 1") as caught:
        ask(job("raises"), files, limit_s=300)
    assert "ZeroDivisionError: planted" in caught.value.details


def test_no_answer_is_no_success(files: WorkerFiles) -> None:
    with pytest.raises(WorkerFailed, match="ended"):
        ask(job("says_nothing"), files, limit_s=300)


def test_a_process_that_holds_pythons_lock_ends_itself_at_its_limit(files: WorkerFiles, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    for limit_s in (1, 8, 64, 512):  # on a busy machine the first may be over before the task begins
        with forks.forking(), WorkerProcess(job("holds_the_lock", limit_s=limit_s, begun=str(begun)), files) as worker:
            assert worker.receive(600) is None
            assert worker.wait_ended() == "exit code 1"
        if begun.exists():
            break
    assert "in holds_the_lock" in files.stacks.read_text()


def test_a_process_dies_with_its_parent(files: WorkerFiles) -> None:
    with WorkerProcess(job("hangs"), files) as worker:
        assert worker._process.stdin is not None
        worker._process.stdin.close()  # what the system does when the parent is killed
        assert worker.wait_ended(300) == "killed by SIGKILL"


def test_a_process_without_a_job_says_what_it_is_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from harness.runner.worker import main; main()"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "started by the harness, not by hand" in done.stderr


def test_a_signal_is_named(files: WorkerFiles) -> None:
    with WorkerProcess(job("hangs"), files) as worker:
        os.kill(worker.pid, signal.SIGSEGV)
        assert worker.wait_ended(300) == "killed by SIGSEGV"


def test_a_process_can_be_ended_twice_and_as_soon_as_it_is_there(files: WorkerFiles) -> None:
    for forking in (nullcontext(), forks.forking()):
        with forking:
            worker = WorkerProcess(job("hangs"), files)
        worker.end()
        worker.end()


def test_files_go_to_a_temporary_folder_where_the_report_folder_cannot_be_written(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    files = WorkerFiles.create(in_the_way / "logs", "worker-1")
    assert files.log.exists()
    assert tmp_path not in files.log.parents
    files.log.unlink()
    files.discard_empty()
    files.log.parent.rmdir()


def test_no_place_for_the_files_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(in_the_way))
    with pytest.raises(ReportError, match="cannot be written: Not a directory"):
        WorkerFiles.create(in_the_way / "logs", "worker-1")
