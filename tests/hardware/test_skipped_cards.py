"""Why TensorFlow leaves out a GPU stands in its log, which the finding quotes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from numpy_machine import gpus

from harness.hardware.cards.judge import judge_numbering
from harness.hardware.cards.skipped import skipping_lines
from harness.records import Finding, Verdict

_START = "2026-11-27 07:00:00.000000: I tensorflow/core/common_runtime/gpu/gpu_device.cc:2265] "
_OTHER = f"{_START}Created device /job:localhost/replica:0/task:0/device:GPU:0 with 22000 MB memory"
_GPU = "(device: 1, name: NVIDIA GeForce GTX 1050, pci bus id: 0000:02:00.0, compute capability: 6.1)"
_SMALL = (
    f"{_START}Ignoring visible gpu device {_GPU} with core count: 5. The minimum required count is 8. You can adjust "
    "this requirement with the env var TF_MIN_GPU_MULTIPROCESSOR_COUNT."
)
_OLD = (
    f"{_START}Ignoring visible gpu device {_GPU} with Cuda compute capability 3.0. The minimum required Cuda "
    "capability is 3.5."
)


def _found(log: str, folder: Path) -> Finding:
    """The finding about the second of two GPUs, if TensorFlow leaves it out and writes this log."""
    first, second = gpus(2)
    path = folder / "log.txt"
    path.write_text(log, encoding="utf-8")
    present = (first, replace(second, label="nvml:1", device=None))
    found, _ = judge_numbering([first], present, [str(first.uuid)], None, log=skipping_lines(path))
    (missing,) = found
    assert (missing.kind, missing.device, missing.severity) == ("missing-device", "nvml:1", Verdict.FAIL)
    return missing


@pytest.mark.parametrize(
    ("line", "step"),
    [(_SMALL, "set TF_MIN_GPU_MULTIPROCESSOR_COUNT"), (_OLD, "use a TensorFlow that supports the compute capability")],
)
def test_the_reason_in_the_log_is_quoted_and_decides_the_next_step(line: str, step: str, tmp_path: Path) -> None:
    missing = _found(f"{_OTHER}\n{line}\n", tmp_path)
    assert line.removeprefix(_START) in missing.message
    assert missing.next_step.startswith(step)


def test_a_log_that_says_nothing_of_the_card_leaves_the_reason_open(tmp_path: Path) -> None:
    for log in ("", _OTHER, _SMALL.replace("0000:02:00.0", "0000:05:00.0")):
        missing = _found(log, tmp_path)
        assert "its log says" not in missing.message
        assert "TF_MIN_GPU_MULTIPROCESSOR_COUNT" not in missing.next_step
    assert skipping_lines(tmp_path / "none.txt") == ()
