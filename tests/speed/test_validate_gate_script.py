"""``tests/benchmarks/scripts/validate_gate.py`` plants work that is really done."""

from __future__ import annotations

import subprocess
from collections.abc import Callable


def planted_work_is_executed() -> None:
    import runpy
    from collections import Counter
    from pathlib import Path

    import tensorflow as tf

    import harness

    script = runpy.run_path(str(Path(harness.__file__).parent.parent / "tests/benchmarks/scripts/validate_gate.py"))
    devices = harness.configure("cpu:2")
    start, link = script["links"](tf)["matmul"]
    found = {}
    for planted in (0, 3):
        _, parallel = script["sides"](tf, devices, start, link, planted)
        ops = harness.trace(parallel).ops
        found[planted] = Counter(op.executed_type for op in ops if op.type == "MatMul")
        results = [float(each) for each in parallel()]
        assert len(results) == 2
    # On each of two devices, and none of them optimised away.
    each = 2 * script["LINKS"]
    executed = {planted: sum(count for kind, count in kinds.items() if kind) for planted, kinds in found.items()}
    assert executed == {0: each, 3: each + 2 * 3}
    made = script["measure_here"]("cpu:2", 1, 0.02)
    assert set(made["records"]) == set(script["links"](tf))
    assert all(record["gates"] and record["single_ns"] for record in made["records"].values())
    print("planted")


def test_planted_work_is_really_done(fresh_process: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert fresh_process(planted_work_is_executed).stdout.endswith("planted\n")
