from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import planted_parallel
import pytest

import harness
from harness import VerificationError
from harness.devices.device import Device, Devices
from harness.errors import UsageError
from harness.strategies import Activation, Argument, Dense, Embed, Program, Variable, programs, sample
from harness.strategies.script import script

pytestmark = pytest.mark.usefixtures("forked_workers")

PROGRAM = Program(
    (Argument("xs.0", (3,)), Argument("xs.1", (), "int32", below=4), Argument("c0", (3, 2), broadcast=True)),
    (Variable("w0", (4, 2), "table"),),
    (Dense("xs.0", "c0"), Embed("xs.1", "w0"), Activation("v0", "tanh")),
    (("main", "v2"), ("rest.0", "v1")),
    rows=5,
    seed=3,
)
HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
CPUS = Devices([Device(HOST[:-1] + str(index), "logical-cpu", "") for index in range(3)], spec="cpu:3")


def names_in(text: str) -> dict[str, Any]:
    """What the script defines when it is imported, without its main part."""
    names: dict[str, Any] = {"__name__": "imported"}
    exec(compile(text, "script", "exec"), names)
    return names


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "replay.py"
    file.write_text(text, encoding="utf-8")
    roots = [Path(harness.__file__).parent.parent, Path(__file__).parent]
    paths = os.pathsep.join([*map(str, roots), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(file)],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_script_makes_the_same_program() -> None:
    for program in [PROGRAM, *sample(programs(exact=None, traced=None), 30, seed=12)]:
        assert names_in(script(program))["program"] == program


def test_the_script_names_the_devices_in_their_order() -> None:
    assert 'harness.configure("cpu:2")' in PROGRAM.script("cpu:2").replace("'", '"')
    text = PROGRAM.script(CPUS[::-2])
    assert "harness.configure('cpu:3')" in text
    assert f"[{HOST[:-1] + '2'!r}, {HOST!r}]" in text


def test_the_script_imports_what_made_the_parallel_callable() -> None:
    assert "harness.make_parallel(built.fn" in PROGRAM.script(make_parallel=harness.make_parallel)
    by_name = PROGRAM.script(make_parallel="planted_parallel:forgets_the_last_row")
    assert by_name == PROGRAM.script(make_parallel=planted_parallel.forgets_the_last_row)
    assert "from planted_parallel import forgets_the_last_row\n" in by_name
    assert "parallel = forgets_the_last_row(built.fn" in by_name


@pytest.mark.parametrize("make", ["harness", "a:b:c", "a b:c", lambda fn, devices, **options: fn])
def test_what_a_script_cannot_import_is_refused(make: str | Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="make_parallel="):
        PROGRAM.script(make_parallel=make)


def test_a_clean_program_exits_with_0_and_a_planted_fault_with_1(tmp_path: Path) -> None:
    clean = run(PROGRAM.script(CPUS[1:]), tmp_path)
    assert clean.returncode == 0, clean.stderr
    assert clean.stdout.startswith("PASS")
    faulty = run(PROGRAM.script("cpu:2", make_parallel=planted_parallel.forgets_the_last_row), tmp_path)
    assert faulty.returncode == 1
    assert "[H104 value, C" in faulty.stderr
    assert "Traceback" not in faulty.stderr


def find_shrink_and_print() -> None:
    """In a process of its own: a planted fault is found, made small, and its error ends with a script."""
    from harness.strategies import assert_program, explore

    devices = harness.configure("cpu:2")
    assert assert_program(PROGRAM, devices, modes=("eager",)).passed

    def check(program: Program) -> None:
        assert_program(program, devices, make_parallel=planted_parallel.forgets_the_last_row, modes=("eager",), seed=4)

    failure = explore(check, programs(dtypes=("float32",)), examples=20).failure
    assert failure is not None
    assert isinstance(failure.error, VerificationError)
    assert {finding.kind for finding in failure.error.findings} >= {"value"}
    assert (len(failure.example.steps), len(failure.example.outputs), failure.example.rows) == (1, 1, 1)
    text = str(failure.error).partition("Script that reproduces the failure:\n\n")[2]
    assert text == failure.example.script(
        devices, make_parallel=planted_parallel.forgets_the_last_row, modes=("eager",), seed=4
    )

    def local(*args: Any, **options: Any) -> Any:
        return planted_parallel.forgets_the_last_row(*args, **options)

    with pytest.raises(
        VerificationError, match=r"# find_shrink_and_print.<locals>.local cannot be imported: define it"
    ) as raised:
        assert_program(failure.example, devices, make_parallel=local, modes=("eager",))
    assert raised.value.findings
    assert raised.value.verification is not None


def test_a_failing_program_is_shrunk_and_its_error_ends_with_the_script(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    fresh_process(find_shrink_and_print)
