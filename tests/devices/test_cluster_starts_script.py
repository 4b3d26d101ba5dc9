"""``tests/benchmarks/scripts/cluster_starts.py`` starts clusters, and counts what fails."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("forked_workers")

_SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "scripts" / "cluster_starts.py"


def test_a_few_clusters_start_one_after_the_other_and_a_client_computes_on_them() -> None:
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), "--clusters", "2", "--hosts", "2", "--connect"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[-1].endswith(": 2 started")


def test_a_start_that_fails_is_no_start() -> None:
    script: dict[str, Any] = runpy.run_path(str(_SCRIPT))
    assert script["_outcome"](["127.0.0.1:1", ""], False, {}) == "a host did not say its address"
    assert script["_outcome"](["127.0.0.1:1", "127.0.0.1:1"], False, {}).startswith("clash: ")
    assert "refuses the connection" in script["_outcome"](["127.0.0.1:1"], False, {})
