"""Runs what the wheel has installed, as a user does: from the scripts' folder, in a folder without the sources."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

NAME = "tf-placement-harness"
#: Seconds after which a command hangs.
_LIMIT_S = 900


def run(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``harness`` or ``pytest`` in ``folder``, without what this test session has in its environment."""
    ours = ("HARNESS", "PYTEST", "PYTHONPATH", "_HARNESS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [str(Path(sys.executable).with_name(script)), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )


def readme_file(name: str) -> str:
    """A file that the README shows, as the installed metadata has it: the block that begins with ```python NAME."""
    text = distribution(NAME).read_text("METADATA") or ""
    found = re.search(rf"^```python {re.escape(name)}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, f"the README shows no file {name}"
    return found[1]
