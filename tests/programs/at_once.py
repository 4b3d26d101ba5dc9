"""Runs the tests of this folder on two and on four logical CPUs, both at once: each is a session of one process.

python tests/programs/at_once.py [options of pytest]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

_FOLDER = Path(__file__).parent
_SPECS = ("cpu:2", "cpu:4")


def main(options: list[str]) -> int:
    """Print what each session prints, one after the other, and return 0 if both pass."""
    pytest = [sys.executable, "-m", "pytest", str(_FOLDER), "-m", "not long", "--harness-require"]
    pytest += ["-p", "no:cacheprovider", *options]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, spec) for spec in _SPECS]
        started = []
        for spec, output in zip(_SPECS, outputs, strict=True):
            with output.open("w") as stream:
                started.append(subprocess.Popen([*pytest, f"--harness-devices={spec}"], stdout=stream, stderr=stream))
        codes = [process.wait() for process in started]
        for output in outputs:
            print(output.read_text(encoding="utf-8"))
    return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
