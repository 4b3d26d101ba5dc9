"""``harness replay``: a failure that a test session saved is there again, until the program is mended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import run

Session = Callable[..., pytest.RunResult]

#: Its rows come from a file. Of equal rows the mean is the same in each shard, so that only others show the fault.
_TEST = """
    import harness
    import numpy as np
    import tensorflow as tf

    def fn(x):
        return {OP}

    def test_centred(devices, verify):
        rows = np.loadtxt("rows.txt", dtype=np.float32)
        verify(harness.make_parallel(fn, devices), fn, {"x": rows}, gradients=False, modes=["eager"], exact=True)
"""
_MOVED = """
    # These lines
    # are new.
"""
_NOT_ROW_WISE, _ROW_WISE = "2.0 * x - tf.reduce_mean(x, axis=0)", "2.0 * x"


def test_a_saved_failure_fails_again_and_passes_once_the_program_is_right(
    pytester: pytest.Pytester, inner_pytest: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(pytester.path)
    rows = folder / "rows.txt"
    saved = folder / ".harness" / "failures"
    options = ("--harness-devices=cpu:2", "--harness-shrink", "--harness-modes=eager")

    def replayed() -> tuple[int, str]:
        (case,) = saved.iterdir()
        capfd.readouterr()
        done = run(folder, "replay", str(case), planted=False)
        assert done.stdout.startswith("test_it.py:"), done.stderr
        return done.returncode, capfd.readouterr().out + done.stderr

    pytester.makepyfile(test_it=_TEST.replace("{OP}", _NOT_ROW_WISE))
    rows.write_text("7 8\n1 2\n5 6\n3 5\n", encoding="utf-8")
    failed = inner_pytest(*options, real=True)
    failed.assert_outcomes(failed=1)
    cause = "The function is not row-wise"
    failed.stdout.fnmatch_lines(
        [f"*{cause}*still fails with 2 of 4 rows*", "Replay: harness replay .harness/failures/test_it.py-*.npz"]
    )

    # With these rows the same program passes; those of its failure are in the file. The call may move.
    rows.write_text("1 2\n" * 4, encoding="utf-8")
    pytester.makepyfile(test_it=_MOVED + _TEST.replace("{OP}", _NOT_ROW_WISE))
    code, text = replayed()
    assert code == 1
    assert cause in text
    assert "1 failed" in text
    assert "still fails with" not in text, "--harness-shrink was not given"

    pytester.makepyfile(test_it=_TEST.replace("{OP}", _ROW_WISE))
    code, text = replayed()
    assert code == 0, text
    assert "1 passed" in text
    assert len(list(saved.iterdir())) == 1, "a replay removes no case"

    # A replay that does not reach the call replays nothing.
    pytester.makepyfile(test_it=_MOVED + _TEST.replace("{OP}", _ROW_WISE).replace("verify(", "verify( "))
    code, text = replayed()
    assert code == 3, text
    assert "the case was not replayed: no call of verify at test_it.py:10 was reached" in text

    inner_pytest(*options, real=True).assert_outcomes(passed=1)
    assert list(saved.iterdir()) == [], "the test passes"


def test_what_is_no_saved_failure_is_refused_in_one_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "case.npz", rows=np.ones(3))
    for name in ("case.npz", "absent.npz"):
        done = run(tmp_path, "replay", name, planted=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{name}: not a saved case" in done.stderr
        assert len(done.stderr.splitlines()) == 1
