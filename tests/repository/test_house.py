"""The import rules hold, and each of them is seen to refuse what it forbids."""

from __future__ import annotations

from pathlib import Path

import pytest
from house import FRONTS, GROUND_FLOOR, ROOMS, STARTS, circle, violations
from import_scan import Import, imports_of

_ROOT = Path(__file__).resolve().parents[2]


def test_no_import_breaks_the_rules_of_the_house() -> None:
    assert violations(_ROOT) == []


def test_every_room_and_every_module_outside_of_the_rooms_has_its_place() -> None:
    package = _ROOT / "harness"
    rooms = {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms == {*ROOMS, *FRONTS}
    assert {path.stem for path in package.glob("*.py")} == {"__init__", *GROUND_FLOOR, *STARTS}


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("devices/a.py", "from harness.parallel.data import make_parallel", "parallel is not above devices"),
        ("devices/a.py", "def f():\n    import harness.report.terminal", "report is not above devices"),
        ("evidence/a.py", "from harness import judgement", "judgement is not above evidence"),
        ("judgement/a.py", "from harness.strategies import programs", "strategies is not above judgement"),
        ("runner/a.py", "from harness.checking.run import Plan", "checking is not above runner"),
        ("devices/a.py", "import harness", "neither a room above nor the ground floor"),
        ("devices/a.py", "from harness import verify", "neither a room above nor the ground floor"),
        ("report/a.py", "from harness.cli.app import app", "neither a room above nor the ground floor"),
        ("hardware/a.py", "from harness.distribute import Training", "hardware and distribute stand side by side"),
        ("distribute/a.py", "from harness.hardware.nvml import Nvml", "distribute and hardware stand side by side"),
        ("cli.py", "def f():\n    from harness.pytest_plugin.plugin import MARKER", "nothing imports the fronts"),
        ("records.py", "from harness.devices.name import DeviceName", "the ground floor imports no room"),
        ("errors.py", "from harness.cli.app import app", "neither a room above nor the ground floor"),
        ("devices/a.py", "from .name import DeviceName", "a relative import"),
        ("devices/a.py", "import pytest", "only harness/pytest_plugin imports pytest"),
        ("cli/a.py", "from _pytest.config import main", "only harness/pytest_plugin imports _pytest"),
        ("checks/a.py", "def f():\n    from hypothesis import given", "only harness/strategies imports hypothesis"),
        ("report/a.py", "import typer", "only harness/cli imports typer"),
        ("hardware/a.py", "def f():\n    import pynvml", "only harness/devices imports pynvml"),
        ("checks/a.py", "RUN = 'import sys; from harness.cli.app import main; main()'", "neither a room above nor"),
        (
            "checks/a.py",
            "def f(a):\n    return f'{a}from harness.report.html import page'",
            "report is not above checks",
        ),
        ("runner/a.py", "RUN = 'import sys\\nfrom harness.evidence import trace\\nf(%d)' % 3", "evidence is not above"),
        (
            "runner/a.py",
            'RUN = """\n    if 1:\n        import harness.evidence.op\n"""',
            "evidence is not above runner",
        ),
        ("runner/a.py", "TASK = 'harness.checking.process:run'", "checking is not above runner"),
        (
            "runner/a.py",
            "def f(a):\n    return f'harness.runner.{a}', f'harness.checks.own:to_{a}'",
            "checks is not above",
        ),
        ("devices/a.py", "RUN = 'import pytest; pytest.main()'", "only harness/pytest_plugin imports pytest"),
        ("evidence/a.py", "RUN = 'import tensorflow.python.eager'", "only harness/_tensorflow.py touches"),
        ("strategies/a.py", "SCRIPT = 'import harness'", "neither a room above nor"),
        ("devices/a.py", "import tensorflow as tf", "takes seconds to load"),
        ("devices/a.py", "if True:\n    import keras.layers", "takes seconds to load"),
        ("_tensorflow.py", "from tensorflow.python.eager import context", "takes seconds to load"),
        (
            "evidence/a.py",
            "def f():\n    from tensorflow.python.eager import context",
            "only harness/_tensorflow.py touches TensorFlow's private interface",
        ),
        (
            "evidence/a.py",
            "def f():\n    import tensorflow.core.framework.graph_pb2",
            "only harness/_tensorflow.py touches TensorFlow's private interface",
        ),
        (
            "evidence/a.py",
            "def f():\n    return importlib.import_module('tensorflow.python.eager.context')",
            "only harness/_tensorflow.py touches TensorFlow's private interface",
        ),
        (
            "evidence/a.py",
            "def f():\n    return load('tensorflow.python.eager.context')",
            "only harness/_tensorflow.py touches TensorFlow's private interface",
        ),
        (
            "parallel/a.py",
            "def f(tf):\n    return tf.__internal__.autograph",
            "only harness/_tensorflow.py touches TensorFlow's private interface",
        ),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, text: str, why: str) -> None:
    planted = tmp_path / "harness" / file
    planted.parent.mkdir(parents=True)
    planted.write_text(text, encoding="utf-8")
    assert len(found := violations(tmp_path)) == 1
    assert found[0].startswith(f"harness/{file}:")
    assert why in found[0]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("judgement/a.py", "from harness.devices.name import DeviceName\nfrom harness.errors import HarnessError"),
        ("judgement/a.py", "from harness.judgement import values"),
        ("cli/a.py", "import typer\nfrom harness import __version__\nfrom harness.report.terminal import make_table"),
        ("pytest_plugin/a.py", "import pytest"),
        ("distribute.py", "from harness.distribute.run import equivalent"),
        ("strategies/a.py", "from hypothesis import strategies"),
        ("_tensorflow.py", "def f():\n    from tensorflow.python.eager import context"),
        ("evidence/a.py", "def f():\n    import tensorflow as tf"),
        ("evidence/a.py", "def f():\n    from tensorflow.keras import layers"),
        ("evidence/a.py", "if TYPE_CHECKING:\n    import tensorflow as tf"),
        ("evidence/a.py", "import tensorflow_of_another_kind"),
        ("runner/process.py", "RUN = 'import sys; from harness.runner.worker import main; main()'"),
        ("checking/run.py", "TASK = 'harness.checking.process:run'"),
        ("evidence/a.py", "RUN = 'import tensorflow as tf'"),
        ("strategies/script.py", "SCRIPT = 'import harness'"),
        ("evidence/a.py", 'def f():\n    """As in a test:\n\n    import pytest\n    harness.report.page:show\n    """'),
        ("evidence/a.py", "HINT = 'take what is important from harness.cli and report it'"),
    ],
)
def test_what_the_rules_allow_is_left_alone(tmp_path: Path, file: str, text: str) -> None:
    allowed = tmp_path / "harness" / file
    allowed.parent.mkdir(parents=True)
    allowed.write_text(text, encoding="utf-8")
    assert violations(tmp_path) == []


def test_imports_are_seen_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        "import one\n"
        "from two.three import four as five\n"
        "class C:\n    import six\n"
        "def f():\n    import seven\n"
        "if typing.TYPE_CHECKING:\n    import eight\nelse:\n    import nine\n"
        "try:\n    import ten\nexcept ImportError:\n    pass\n",
        encoding="utf-8",
    )
    assert imports_of(path) == [
        Import("one", 1, True),
        Import("two.three.four", 2, True),
        Import("six", 4, True),
        Import("seven", 6, False),
        Import("eight", 8, False),
        Import("nine", 10, True),
        Import("ten", 12, True),
    ]


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circle(_ROOT) == []


@pytest.mark.parametrize("back", ["from harness.devices.one import A", "def f():\n    from harness.devices import one"])
def test_a_planted_circle_is_found(tmp_path: Path, back: str) -> None:
    folder = tmp_path / "harness" / "devices"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text("from harness.devices.two import B\n", encoding="utf-8")
    (folder / "two.py").write_text("import harness.devices.three\n", encoding="utf-8")
    (folder / "three.py").write_text("A = 1\n", encoding="utf-8")
    assert circle(tmp_path) == []
    (folder / "three.py").write_text(back, encoding="utf-8")
    assert sorted({*circle(tmp_path)}) == ["harness.devices.one", "harness.devices.three", "harness.devices.two"]
