"""What starting pytest with the plug-in, and not using it, costs.

In time on the processor: a start waits for nothing else, and how long it has to wait for a processor is chance. That
it loads nothing heavy is held by ``tests/plugin``.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import harness

pytest_plugins = ["figures"]

#: From the goals of the project, in milliseconds.
_TARGET_MS = 50.0
#: As long as nothing but loading TensorFlow takes.
_ABSURD_MS = 1000.0


def processor_time_of_children_s() -> float:
    """Time on the processor of all processes that this one has started and waited for, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_session_of_one_plain_test_with_and_without(compare: Callable[..., object], tmp_path: Path) -> None:
    tmp_path.joinpath("test_plain.py").write_text("def test_plain():\n    pass\n", encoding="utf-8")
    paths = [str(Path(harness.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        # An installed package is compiled once, not at each start.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"),
    }

    def start(*arguments: str) -> Callable[[int], object]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        return lambda _: subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)

    compare(
        "starting pytest with the plug-in unused, processor time",
        start("-p", "harness.pytest_plugin.plugin"),
        start(),
        target=_TARGET_MS,
        absurd=_ABSURD_MS,
        pairs=15,
        warmup=1,
        unit="ms more",
        clock=processor_time_of_children_s,
    )
