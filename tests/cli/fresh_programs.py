"""What tests run in fresh processes, in a file that loads neither pytest nor TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Callable

COMMANDS = (
    ["--help"],
    ["--version"],
    ["list"],
    ["list", "--json"],
    ["validate", "--help"],
    ["devices", "--help"],
    ["trace", "--help"],
    ["profile", "--help"],
    ["scale", "--help"],
    ["serve", "--help"],
    ["selftest", "--help"],
)
NEED_EXTRAS = (
    ["compare", "a.json", "b.json"],
    ["calibrate"],
    ["scale", "a.py:f", "--devices", "cpu:1"],
    ["profile", "a.py:f"],
)


def _exit_code(arguments: list[str]) -> int:
    from harness.cli.app import main

    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)


def answer_lightly() -> None:
    """Run the commands that answer at once, and see that none of them loads anything heavy."""
    for arguments in COMMANDS:
        assert _exit_code(arguments) == 0, arguments
        heavy = ("tensorflow", "keras", "hypothesis", "pytest", "matplotlib", "scipy", "jinja2")
        assert [name for name in heavy if name in sys.modules] == [], arguments


def use_the_core() -> None:
    """Use the library where all that extras install is missing, and print what it says."""
    import numpy as np

    import harness
    from harness.errors import MissingExtra

    def caught(use: Callable[[], object]) -> str:
        try:
            use()
        except MissingExtra as error:
            return str(error)
        return "nothing"

    def double(x: object) -> object:
        return x + x  # type: ignore[operator]

    for arguments in NEED_EXTRAS:
        assert _exit_code(arguments) == 2, arguments
    devices = harness.configure("cpu:2")
    x = np.ones((4, 3), np.float32)
    assert harness.verify(harness.make_parallel(double, devices), double, {"x": x}, devices=devices).passed
    print(caught(lambda: harness.strategies.programs))
    print(caught(lambda: harness.measure_speedup(lambda: x, lambda: x, devices=devices)))
    print(sorted({"hypothesis", "jinja2", "matplotlib", "pytest", "scipy"} & {*sys.modules}))
