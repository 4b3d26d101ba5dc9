from __future__ import annotations

import subprocess
from collections.abc import Callable


def draw_and_print_without_tensorflow() -> None:
    import sys

    import harness

    program = harness.strategies.sample(harness.strategies.programs(), 3, seed=1)[-1]
    assert program.inputs()
    assert "harness.make_parallel" in program.script("cpu:2")
    assert "tensorflow" not in sys.modules


def test_programs_are_drawn_and_printed_without_tensorflow(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    fresh_process(draw_and_print_without_tensorflow, new_python=True)
