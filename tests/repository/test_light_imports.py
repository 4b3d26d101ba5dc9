"""What loads without TensorFlow, and what loads without anything that is slow to load."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

#: Loads with none of the libraries below: what the plug-in, the command line and the tests of a spec start with.
LIGHT = (
    "harness",
    "harness.errors",
    "harness.records",
    "harness.devices",
    "harness.devices.device",
    "harness.devices.name",
    "harness.devices.needs",
    "harness.devices.plan",
    "harness.devices.profile",
    "harness.devices.request",
    "harness.devices.runtime",
    "harness.devices.spec",
    "harness.evidence.op",
    "harness.evidence.trace",
    "harness.parallel.data",
    "harness.checking.run",
    "harness.checking.suite",
    "harness.report.checks",
    "harness.report.session",
    "harness.report.speedups",
    "harness.speed.options",
    "harness.speed.record",
)
HEAVY = ("hypothesis", "numpy", "psutil", "pydantic", "pytest", "rich", "scipy", "typer")
#: Takes seconds: no module of the harness loads it when it is imported.
SLOWEST = ("tensorflow", "keras", "sklearn", "matplotlib")


def import_everything() -> None:
    """First ``harness`` by itself, then the light modules without the heavy libraries, then all without TensorFlow."""
    import importlib
    import importlib.abc
    import pkgutil
    import sys
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    class Blocker(importlib.abc.MetaPathFinder):
        blocked: tuple[str, ...] = (*HEAVY, *SLOWEST)

        def find_spec(
            self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            if name.partition(".")[0] in self.blocked:
                raise ModuleNotFoundError(f"{name} is blocked", name=name)
            return None

    blocker = Blocker()
    sys.meta_path.insert(0, blocker)
    harness = importlib.import_module("harness")
    parts = sorted(name for name in sys.modules if name.startswith("harness."))
    refused = {}

    def load(name: str) -> None:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            refused[name] = str(error)

    for name in LIGHT:
        load(name)
    load("harness.devices.profile_schema")
    blocker.blocked = SLOWEST
    names = [module.name for module in pkgutil.walk_packages(harness.__path__, "harness.")]
    for name in names:
        load(name)
    load("tensorflow")
    print(json.dumps({"parts": parts, "refused": refused, "loaded": sorted({*names} & {*sys.modules})}))


def test_what_loads_without_what(fresh_process: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    seen = json.loads(fresh_process(import_everything, new_python=True).stdout.splitlines()[-1])
    assert seen["parts"] == [], "import harness loads no other part of it"
    assert seen["refused"] == {
        # Both are refused, and so the blocker blocks.
        "harness.devices.profile_schema": "pydantic is blocked",
        "tensorflow": "tensorflow is blocked",
    }
    assert len(seen["loaded"]) > 100, "all modules are walked"
