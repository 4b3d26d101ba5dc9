"""The scripts as texts: each is valid Python, and differs from that for one device by what it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.advice.script import Facts, Source, lines_to_change, mirrored, on_one_device, pipeline, strategy_of

TRAINING = Facts(Source("build", "train"), "softgpu:2", "training", 32, loss="model.loss.call", added=True, scaled=True)


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


def test_each_stage_has_an_optimizer_on_its_device_unless_it_looks_at_all_gradients() -> None:
    def text(**options: bool) -> str:
        facts = replace(TRAINING, scaled=False, joint=options.pop("joint", False))
        return pipeline(facts, (0, 2, 5), 4, **options).text

    assert text().count("optimizer.apply(slopes, weights)") == 1
    assert "model.optimizer.apply" not in text()
    for one in (text(joint=True), text(shared=True)):
        assert "optimizers" not in one
        assert one.count("model.optimizer.apply(gradients, variables)") == 1


def test_a_variant_names_its_algorithm_and_its_number() -> None:
    one = on_one_device(TRAINING)
    default, copying = mirrored(TRAINING), mirrored(TRAINING, "ReductionToOneDevice")
    assert "strategy = tf.distribute.MirroredStrategy(devices.names)\n" in default.text
    line = "tf.distribute.MirroredStrategy(devices.names, cross_device_ops=tf.distribute.ReductionToOneDevice())"
    assert line == strategy_of("ReductionToOneDevice")
    assert f"strategy = {line}\n" in copying.text
    compile(copying.text, "script.py", "exec")
    assert lines_to_change(copying, one) == lines_to_change(default, one)
    assert "microbatches=8)" in pipeline(TRAINING, (0, 2, 5), 8).text


def test_the_users_function_is_imported_by_any_name() -> None:
    def text(function: str, path: str = "train.py") -> str:
        return on_one_device(replace(TRAINING, source=Source.of_file(Path(path), function))).text

    assert "from train import build\n" in text("build")
    assert "from train import Small\n" in text("Small.make")
    assert "build = Small.make\n" in text("Small.make")
    odd = text("Small.make", "my-train.py")
    assert odd.startswith("import runpy\n\nimport harness\n")
    assert 'build = runpy.run_path("my-train.py")["Small"].make\n' in odd
    assert Source.of_file(Path("my-train.py"), "make").name == "my-train.py:make"


def test_the_script_of_a_function_in_a_notebook_uses_it_where_it_is() -> None:
    one = on_one_device(replace(TRAINING, source=Source("make"), chosen="[:2]"))
    compile(one.text, "script.py", "exec")
    assert one.head == (
        'import harness\nimport tensorflow as tf\n\ndevices = harness.configure("softgpu:2")[:2]\nbuild = make\n'
    )
    nameless = on_one_device(replace(TRAINING, source=Source("<lambda>")))
    assert "# build is the function that was given.\n" in nameless.head
    packaged = on_one_device(replace(TRAINING, source=Source("build", "models.small")))
    assert "from models.small import build\n" in packaged.text
    assert Source("build", "models.small").name == "models/small.py:build"
