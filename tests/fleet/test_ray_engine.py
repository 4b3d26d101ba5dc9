"""The engine for Ray, with a stand-in for Ray's interface: what each node comes to, and that nothing is left behind."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import simulated_fleet as simulated

from harness.errors import UsageError
from harness.fleet.engines.engine import Done, MachineRun
from harness.fleet.engines.ray import RayEngine, _task
from harness.report.storage import json_text


class FakeRay(ModuleType):
    """Runs each task when it is asked for. The task on a node named ``lost`` raises the error of a lost node."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=RuntimeError)
        self.alive = {"a": True, "b": True, "gone": False}
        self.started: list[dict[str, Any]] = []
        self.cancelled: list[object] = []
        self.are_stuck = False
        self.is_shut_down = False

    def init(self, address: str, **_: object) -> None:
        if address != "good":
            raise ConnectionError("Failed to connect to GCS at address\nsecond line")
        self.is_shut_down = False

    def is_initialized(self) -> bool:
        return not self.is_shut_down

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeName": name,
                "NodeID": f"id-{name}",
                "Alive": alive,
                "Resources": {"GPU": 4.0},
                "NodeManagerAddress": "10.0.0.1",
            }
            for name, alive in self.alive.items()
        ]

    def remote(self, **_: object) -> Callable[..., Any]:
        def decorate(_task: object) -> Any:
            def options(**given: Any) -> Any:
                def start(command: list[str], machine: str, limit_s: float) -> str:
                    self.started.append({**given, "command": command, "machine": machine, "limit_s": limit_s})
                    return machine

                return SimpleNamespace(remote=start)

            return SimpleNamespace(options=options)

        return decorate

    def wait(self, references: list[str], **_: object) -> tuple[list[str], list[str]]:
        return ([], references) if self.are_stuck else (references[:1], references[1:])

    def get(self, reference: str) -> tuple[str, str]:
        if reference == "b":
            raise RuntimeError("The node died unexpectedly")
        return json_text(simulated.sound(1, random.Random(1))), ""

    def cancel(self, reference: object, *, force: bool) -> None:
        assert force
        self.cancelled.append(reference)

    def shutdown(self) -> None:
        self.is_shut_down = True


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    strategies = ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda **given: given  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray.util", ModuleType("ray.util"))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
    return fake


def test_each_node_gets_a_task_of_its_own_and_a_lost_node_is_a_result(ray: FakeRay, tmp_path: Path) -> None:
    engine = RayEngine("good")
    assert {each.name: each.why_not for each in engine.machines()} == {"a": "", "b": "", "gone": "not alive"}
    one, other = engine.run(["a", "b"], MachineRun(("--level", "quick"), tmp_path, 60.0))
    assert (one.machine, one.why) == ("a", "")
    assert (other.machine, other.text, other.why) == ("b", None, "RuntimeError: The node died unexpectedly")
    first = ray.started[0]
    assert first["scheduling_strategy"] == {"node_id": "id-a", "soft": False}
    assert (first["num_gpus"], first["machine"], first["limit_s"]) == (4.0, "a", 60.0)
    assert first["command"][1:] == ["-m", "harness", "validate", "--json", "--level", "quick"]
    assert ray.is_shut_down
    assert engine.addresses(["a"]) == {"a": "10.0.0.1"}
    list(engine.run(["a"], MachineRun(("PLAN",), tmp_path, 60.0, command=("fleet", "exchange"))))
    assert ray.started[-1]["command"][1:] == ["-m", "harness", "fleet", "exchange", "--json", "PLAN"]


def test_an_interrupted_run_cancels_what_still_runs(ray: FakeRay, tmp_path: Path) -> None:
    engine = RayEngine("good")
    engine.machines()
    going = engine.run(["a", "b"], MachineRun((), tmp_path, 60.0))
    assert next(going).machine == "a"
    going.close()
    assert (ray.cancelled, ray.is_shut_down) == (["b"], True)


def test_a_task_that_neither_begins_nor_ends_is_a_result(ray: FakeRay, tmp_path: Path) -> None:
    ray.are_stuck = True
    engine = RayEngine("good", wait_s=-100.0)
    engine.machines()
    done = list(engine.run(["a", "b"], MachineRun((), tmp_path, 30.0)))
    assert [each.why for each in done] == ["no result within 30 s, or not free for -100 s"] * 2
    assert ray.cancelled == ["a", "b"]


def test_an_address_that_does_not_answer_is_one_clear_line(ray: FakeRay) -> None:
    with pytest.raises(UsageError, match=r"^--ray bad: Failed to connect to GCS at address second line$"):
        RayEngine("bad").machines()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for prefix in ("", "ray://"):
            address = f"{prefix}127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(UsageError, match=rf"^--ray {address}: Connection refused$"):
                RayEngine(address).machines()


def test_a_task_sends_the_record_or_says_why_there_is_none() -> None:
    program = "import os, sys; print('{}'); print(os.environ['HARNESS_NODE'], file=sys.stderr)"
    assert _task([sys.executable, "-c", program], "a", 60.0) == ("{}\n", "")
    assert _task([sys.executable, "-c", "raise SystemExit('no GPU')"], "a", 60.0) == ("", "no GPU")
    assert _task([sys.executable, "-c", "raise SystemExit(3)"], "a", 60.0) == ("", "no record; exit code 3")
    assert _task([sys.executable, "-c", "import time; time.sleep(600)"], "a", 0.3) == ("", "no result within 0.3 s")
    assert Done("a").text is None
