"""What answers at once: help, version and the list of checks load no TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run

import harness


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["list"],
        ["validate", "--help"],
        ["devices", "--help"],
        ["trace", "--help"],
        ["profile", "--help"],
        ["scale", "--help"],
        ["serve", "--help"],
    ],
)
def test_no_tensorflow_is_loaded(arguments: list[str]) -> None:
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('LOADED', [n for n in ('tensorflow', 'keras', 'hypothesis', "
        "'pytest', 'matplotlib', 'scipy') if n in sys.modules]))\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "from harness.cli.app import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_help_names_the_commands_and_the_exit_codes(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")
    assert done.returncode == 0
    for word in ("validate", "devices", "list", "trace", "--version", "Exit codes: 0", "130"):
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
