"""What answers at once: help, version and the list of checks load no TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fresh_programs
from command_line import IMPORT_ROOT, run, run_process

import harness
from harness.checks.registry import SUITE
from harness.finding_kinds import KINDS


def test_no_tensorflow_is_loaded(fresh_process: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert "Usage: harness selftest" in fresh_process(fresh_programs.answer_lightly, new_python=True).stdout


def test_shells_complete_commands_options_and_values(tmp_path: Path) -> None:
    def completions(words: str, number: int) -> list[str]:
        return run(tmp_path, COMP_WORDS=words, COMP_CWORD=str(number), _HARNESS_COMPLETE="complete_bash").stdout.split()

    assert completions("harness val", 1) == ["validate"]
    assert "--known-failures" in completions("harness validate --", 2)
    assert completions("harness validate --level st", 3) == ["standard"]
    assert "--install-completion" in run(tmp_path, "--help").stdout


def test_the_list_is_printed_as_json(tmp_path: Path) -> None:
    done = run_process(tmp_path, "list", "--json", planted=False)
    assert (done.returncode, done.stderr) == (0, "")
    listed = {check["id"]: check for check in json.loads(done.stdout)}
    assert tuple(listed) == SUITE.ids
    assert listed["vector-add"]["minimum_devices"] == 2
    assert listed["cluster"]["level"] == "standard"
    assert listed["cards"]["hardware"] is True


def test_help_names_the_commands_and_the_exit_codes(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")
    assert done.returncode == 0
    for word in ("validate", "devices", "list", "trace", "--version", "Exit codes: 0:", "130"):
        assert word in done.stdout


def test_help_of_trace_says_that_the_function_is_called_without_arguments(tmp_path: Path) -> None:
    done = run(tmp_path, "trace", "--help")
    assert "FILE.py:FUNCTION" in done.stdout
    assert "without arguments" in done.stdout


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    done = run(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"harness {harness.__version__}\n")


def test_no_command_shows_the_help_and_is_a_usage_error(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 2
    assert "validate" in done.stdout + done.stderr


def test_an_unknown_command_is_a_usage_error(tmp_path: Path) -> None:
    done = run(tmp_path, "vaildate")
    assert done.returncode == 2
    assert "vaildate" in done.stderr


def test_the_list_names_the_shipped_checks(tmp_path: Path) -> None:
    done = run(tmp_path, "list", planted=False)
    assert done.returncode == 0
    for check in ("devices-distinct", "matpow", "vector-add", "generated-programs", "digits-classifier"):
        assert check in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_kind_of_finding_is_explained_by_its_code_or_name(tmp_path: Path) -> None:
    by_code, by_name = run(tmp_path, "explain", "h202"), run(tmp_path, "explain", "gradient-placement")
    assert (by_code.returncode, by_code.stderr) == (0, "")
    assert by_code.stdout == by_name.stdout
    for text in ("H202 gradient-placement", "meaning: ", "example: ", "causes: ", "harness.colocate_gradients()"):
        assert text in by_code.stdout
    listed = run(tmp_path, "explain").stdout
    assert all(f"{kind.code} {kind.name}: " in listed for kind in KINDS.values())


def test_an_unknown_kind_of_finding_is_a_usage_error(tmp_path: Path) -> None:
    done = run(tmp_path, "explain", "H999")
    assert (done.returncode, done.stdout) == (2, "")
    last = max(kind.code for kind in KINDS.values())
    assert (
        f"no kind of finding and no cause has the code or name 'H999'; accepted: H101 to {last}, C101 to" in done.stderr
    )


def test_an_interrupt_of_the_imports_ends_the_command_without_a_traceback() -> None:
    program = """
import builtins, os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
plain = builtins.__import__
def interrupted(name, *arguments, **more):
    if name == "harness.cli.app":
        os.kill(os.getpid(), signal.SIGINT)
    return plain(name, *arguments, **more)
builtins.__import__ = interrupted
from harness.__main__ import main
main()
"""
    env = {**os.environ, "PYTHONPATH": str(IMPORT_ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "harness: ended by SIGINT\n")
