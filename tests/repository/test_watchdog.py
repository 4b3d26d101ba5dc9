"""No session of the project's own tests hangs: a worker that crashes or is stuck fails its test and ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

CRASH = "import os\ndef test_crash():\n    os.abort()\n"
#: Holds Python's lock in C, so that no signal handler and no thread of Python's can run.
STUCK = "import ctypes\ndef test_stuck():\n    ctypes.PyDLL(None).sleep(600)\n"
FINE = "def test_{0}():\n    pass\ndef test_{0}_again():\n    pass\n"
XDIST = ("-p", "xdist.plugin", "-n", "2", "--dist", "loadfile")
EXIT_WHEN_STUCK = ("-o", "faulthandler_exit_on_timeout=true", "-o")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with some tests that pass, and sessions in which the plug-in alone is loaded."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    pytester.makepyfile(**{f"test_{name}": FINE.format(name) for name in ("a", "b", "c")})
    return pytester


def session(run: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return run.runpytest_subprocess("-p", "watchdog", *arguments, timeout=300)


def test_a_session_in_which_nothing_crashes_passes(run: pytest.Pytester) -> None:
    found = session(run, *XDIST, *EXIT_WHEN_STUCK, "faulthandler_timeout=250")
    found.assert_outcomes(passed=6)
    assert found.ret == pytest.ExitCode.OK


def test_a_worker_that_crashes_fails_its_test_and_ends_the_session(run: pytest.Pytester) -> None:
    run.makepyfile(test_crash=CRASH)
    found = session(run, *XDIST)
    assert found.ret != pytest.ExitCode.OK
    crashed = "*crashed while running 'test_crash.py::test_crash'*"
    found.stdout.fnmatch_lines(
        [crashed, "*worker gw? crashed and worker restarting disabled*", "FAILED test_crash.py::*"]
    )


@pytest.mark.parametrize("xdist", [XDIST, ()], ids=["xdist", "one process"])
def test_a_test_that_is_stuck_in_c_is_named_and_ends_the_session(run: pytest.Pytester, xdist: tuple[str, ...]) -> None:
    run.makepyfile(test_stuck=STUCK)
    found = session(run, *xdist, "-v", *EXIT_WHEN_STUCK, "faulthandler_timeout=10")
    assert found.ret != pytest.ExitCode.OK
    found.stderr.fnmatch_lines(["Timeout (*)!", "*in test_stuck"])
    if xdist:
        found.stdout.fnmatch_lines(["FAILED test_stuck.py::test_stuck*"])


def test_a_session_that_takes_too_long_ends(run: pytest.Pytester) -> None:
    run.makepyfile(test_slow="import time\ndef test_slow():\n    time.sleep(40)\n")
    found = session(run, *XDIST, "-o", "session_limit_s=10")
    assert found.ret != pytest.ExitCode.OK
    found.stderr.fnmatch_lines(["Timeout (*)!"])
