"""The scripts as texts: each is valid Python, and differs from that for one device by what it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.advice.script import Facts, lines_to_change, mirrored, on_one_device, pipeline

TRAINING = Facts(
    Path("train.py"), "build", "softgpu:2", "training", 32, loss="model.loss.call", added=True, scaled=True
)


def test_make_parallel_and_the_cpu_are_one_line_away() -> None:
    for facts in (
        TRAINING,
        replace(TRAINING, step="forward"),
        replace(TRAINING, step="function", with_variables=True),
        replace(TRAINING, batch=64, unbuilt=True),
    ):
        one = on_one_device(facts)
        for other in (on_one_device(facts, host=True), on_one_device(facts, parallel=True)):
            compile(other.text, "script.py", "exec")
            assert lines_to_change(other, one) == 1
        assert lines_to_change(one, one) == 0


def test_all_scripts_are_python() -> None:
    for facts in (TRAINING, replace(TRAINING, total="tf.reduce_sum", added=False, batch=8)):
        for script in (mirrored(facts), pipeline(facts, (0, 2, 5), 4), pipeline(facts, (0, 2, 5), 4, shared=True)):
            compile(script.text, "script.py", "exec")
            assert "\n\n\n\n" not in script.text
    compile(pipeline(replace(TRAINING, step="forward"), (0, 2, 5), 4).text, "script.py", "exec")


def test_the_users_function_is_imported_by_any_name() -> None:
    assert "from train import build\n" in on_one_device(TRAINING).text
    assert "from train import Small\n" in on_one_device(replace(TRAINING, function="Small.make")).text
    assert "build = Small.make\n" in on_one_device(replace(TRAINING, function="Small.make")).text
    odd = on_one_device(replace(TRAINING, file=Path("my-train.py"), function="Small.make")).text
    assert odd.startswith("import runpy\n\nimport harness\n")
    assert 'build = runpy.run_path("my-train.py")["Small"].make\n' in odd
