"""The notebook in docs/ runs, and its outputs are those that are saved in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from notebooks import NOTEBOOK


def test_the_notebook_runs_and_its_outputs_are_those_that_are_saved(tmp_path: Path) -> None:
    script = Path(__file__).with_name("notebooks.py")
    root = str(NOTEBOOK.parents[2])
    again = f"import runpy, sys; sys.path.insert(0, {root!r}); sys.argv = ['', '--print']; "
    done = subprocess.run(
        [sys.executable, "-c", f"{again}runpy.run_path({str(script)!r}, run_name='__main__')"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    saved = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    assert json.loads(done.stdout) == saved, "to accept what it shows now: python tests/repository/notebooks.py"
    assert (tmp_path / "harness-report" / "report.html").is_file()
