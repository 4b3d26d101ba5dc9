"""Runs this very harness in another process, as a user would, from wherever its modules are."""

from __future__ import annotations

import sys

#: As the processes of the harness are started: no file in the folder of the programs takes the place of a module.
_BOOT = "import sys; end = sys.argv.index('--'); sys.path[:] = sys.argv[1:end]; sys.argv[1:] = sys.argv[end + 1:]; "


def command_line(*arguments: str) -> list[str]:
    """The command that runs ``harness`` with these arguments."""
    return [sys.executable, "-c", f"{_BOOT}from harness.cli.app import main; main()", *sys.path, "--", *arguments]


def program(text: str, *arguments: str) -> list[str]:
    """The command that runs a Python program, which finds its arguments in ``sys.argv[1:]``."""
    return [sys.executable, "-c", f"{_BOOT}{text}", *sys.path, "--", *arguments]
