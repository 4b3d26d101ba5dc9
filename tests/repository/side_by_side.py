"""Runs commands at once, so that one that uses a single core leaves none idle, and prints what each printed.

python tests/repository/side_by_side.py COMMAND [ARGUMENT ...] -- COMMAND [ARGUMENT ...] ...
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Print what each command prints, one after the other, and return 0 if all succeed."""
    groups = itertools.groupby(arguments, lambda argument: argument == "--")
    commands = [[*words] for is_separator, words in groups if not is_separator]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, str(number)) for number in range(len(commands))]
        started = []
        for command, output in zip(commands, outputs, strict=True):
            with output.open("w") as stream:
                started.append(subprocess.Popen(command, stdout=stream, stderr=stream))
        codes = [process.wait() for process in started]
        for command, output, code in zip(commands, outputs, codes, strict=True):
            print(output.read_text(encoding="utf-8", errors="replace"))
            print(f"exit status {code}: {' '.join(command)}", flush=True)
    return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
