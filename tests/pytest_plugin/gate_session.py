"""Sessions with the gate whose speedups are made up, so that nothing depends on how fast this machine is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

# pytester forgets what was imported during a test, and NumPy cannot be imported twice: so it is there before.
import scipy.stats.mstats  # noqa: F401
from synthetic_runs import record

from harness.speed.record import SpeedupRecord

#: What stands in the place of measuring: the records of ``records.json``, and the second samples that they carry.
_CONFTEST = """
    import json
    from dataclasses import replace
    from pathlib import Path
    from types import SimpleNamespace

    import pytest

    import harness.speed.measure as measure
    from harness.speed.baseline import parse_record

    here = {}

    @pytest.fixture(autouse=True)
    def _made_up(request, monkeypatch):
        records = json.loads(Path("records.json").read_text())
        now = parse_record(records[request.node.name], "records.json")

        def first(single, parallel, **_):
            return replace(now, second_single_ns=(), second_parallel_ns=())

        def again(single, parallel, **_):
            print("measured a second time")
            return SimpleNamespace(
                samples=SimpleNamespace(single_ns=now.second_single_ns, parallel_ns=now.second_parallel_ns)
            )

        monkeypatch.setattr(measure, "measure_speedup", first)
        monkeypatch.setattr(measure, "measure_pairs", again)
"""
_TESTS = """
    import pytest

    @pytest.fixture
    def measured(speedup, devices):
        return lambda: speedup(lambda: 1, lambda: 1, devices=devices)

    def test_one(measured):
        measured()

    def test_other(measured):
        measured()
"""
QUICK = ("-p", "pytest_benchmark.plugin", "--harness-devices=cpu:2", "-s")
COMPARE = ("--benchmark-compare", "--harness-speedup-fail=5%")


class GateSession:
    """A folder with two benchmarks, ``test_one`` and ``test_other``."""

    def __init__(self, pytester: pytest.Pytester, inner_pytest: Callable[..., pytest.RunResult]) -> None:
        self.path = pytester.path
        self._inner = inner_pytest
        pytester.makepyfile(test_speed=_TESTS)
        pytester.makeconftest(_CONFTEST)

    def run(self, records: Mapping[str, SpeedupRecord], *arguments: str, quick: bool = True) -> pytest.RunResult:
        """Run a session that measures these speedups."""
        plain = {name: asdict(each) for name, each in records.items()}
        (self.path / "records.json").write_text(json.dumps(plain), encoding="utf-8")
        return self._inner(*(QUICK if quick else ()), *arguments)

    def save(self, *arguments: str, one: float = 1.9, other: float = 1.5) -> Path:
        """Save a baseline, and return its file."""
        before = {*self.path.rglob("*.json")}
        result = self.run(both(one, other, seed=0), "--benchmark-save=base", *arguments)
        assert result.ret == 0, result.stdout.str() + result.stderr.str()
        [saved] = {*self.path.rglob("0*.json")} - before
        return saved


def both(
    one: float = 1.9, other: float = 1.5, seed: int = 100, second: float | None = None
) -> dict[str, SpeedupRecord]:
    """The two records; ``second`` is the second measurement of the first."""
    return {"test_one": record(one, seed=seed, second=second), "test_other": record(other, seed=seed + 1)}
