"""How somebody else's exception reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.runner.users_error import frames_without, one_line


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError("bad\nand more"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (KeyError("k"), "KeyError: 'k'"),
        (
            TypeError("in user code:\n\n    File 'a.py', line 3\n\n    TypeError: no such thing\n"),
            "TypeError: no such thing",
        ),
        (
            RuntimeError("{{function_node __wrapped__Mul}} bad sizes [Op:Mul] name: "),
            "RuntimeError: bad sizes [Op:Mul]",
        ),
        (RuntimeError("Graph execution error:\n\nDetected at node x\nno space left"), "RuntimeError: no space left"),
        (
            RuntimeError(
                'Graph execution error:\n\nDetected at node x defined at:\n  File "a.py", line 7, in f\n\n'
                "Shapes differ.\nRestart the program.\n\t [[{{node x}}]] [Op:__inference_step_1]"
            ),
            "RuntimeError: Shapes differ.",
        ),
        (
            RuntimeError(
                'Graph execution error:\n\n  File "a.py", line 7, in f\n2 root error(s) found.\n  (0) INTERNAL: lost'
            ),
            "RuntimeError: (0) INTERNAL: lost",
        ),
        (
            ValueError(
                "Exception encountered when calling A.call().\n\nbad axis\n\nArguments received by A.call():\n x"
            ),
            "ValueError: bad axis",
        ),
        (
            ValueError(
                'in user code:\n\n    File "a.py", line 5, in f\n        layer(x)\n\n    ValueError: '
                "Exception encountered when calling A.call().\n\n    bad axis\n\n    Arguments received:\n      x"
            ),
            "ValueError: bad axis",
        ),
    ],
)
def test_an_exception_is_one_line(error: Exception, text: str) -> None:
    assert one_line(error) == text


def test_notes_are_part_of_the_line() -> None:
    error = ValueError("bad")
    vars(error)["__notes__"] = ["in shard 1 of 2,\n on CPU:1"]  # Python 3.10 has no add_note
    assert one_line(error) == "ValueError: bad (in shard 1 of 2, on CPU:1)"


def _raise() -> None:
    raise ValueError("bad")


def _caught(function: Callable[[], object]) -> ValueError:
    with pytest.raises(ValueError, match="bad") as caught:
        function()
    return caught.value


def test_frames_of_hidden_folders_are_left_out_and_others_are_shown() -> None:
    here = Path(__file__).parent
    error = _caught(_raise)
    assert "in _raise" in frames_without(error, [])
    assert "in _raise" in frames_without(error, [here / "elsewhere"])
    assert frames_without(error, [here]) == "ValueError: bad\n"


def test_frames_of_code_that_nobody_wrote_are_left_out() -> None:
    scope: dict[str, object] = {}
    exec(compile("def made():\n    raise ValueError('bad')", "/tmp/__autograph_generated_file1.py", "exec"), scope)
    made = scope["made"]
    assert callable(made)
    text = frames_without(_caught(made), [])
    assert "in made" not in text
    assert "in _caught" in text
