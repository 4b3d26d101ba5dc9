"""How a script is run up to its step, with the arguments that the step is called with."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness import Devices
from harness.errors import InvalidTarget, UsageError
from harness.runner.target import Target
from harness.script.capture import StepCall, named_devices, run_to_step
from harness.script.check import spec_for
from harness.script.inputs import inputs_of

HEAD = """
import numpy as np
import tensorflow as tf
"""
TRAINING = f"""{HEAD}
log = []
w = tf.Variable(tf.ones([3, 1]))

class Trainer:
    def towers(self, x):
        parts = []
        for device, part in zip(("CPU:0", "CPU:1"), tf.split(x, 2)):
            with tf.device(device):
                parts.append(part @ w)
        return tf.concat(parts, axis=0)

    @tf.function
    def step(self, x, rate=0.1, *, decay=0.0):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.towers(x) ** 2)
            if loss < 0.0:
                loss = -loss
        w.assign_sub(rate * tape.gradient(loss, w))
        return loss

def prepared():
    with tf.device("CPU:0"):
        return np.ones((4, 3), "float32")

if __name__ == "__main__":
    trainer = Trainer()
    x = prepared()
    for number in range(3):
        trainer.step(tf.constant(x), decay=0.5)
        log.append(number)
    raise AssertionError("the script went on")
"""
PREDICTION = f"""{HEAD}
def model(x):
    return tf.tanh(x)

def predict(x):
    with tf.device("CPU:0"):
        first = model(x[:2])
    with tf.device("CPU:1"):
        second = model(x[2:])
    return tf.concat([first, second], axis=0)

def main():
    print(predict(tf.ones([4, 3])))

main()
"""


@pytest.fixture(autouse=True)
def _same_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def step_of(folder: Path, text: str, function: str) -> StepCall:
    path = folder / "program.py"
    path.write_text(text)
    return run_to_step(Target(path, function))


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize("function", ["", "step", "Trainer.step"])
def test_the_step_is_found_by_name_or_by_what_it_does(tmp_path: Path, function: str) -> None:
    step = step_of(tmp_path, TRAINING, function)
    assert step.name == "Trainer.step"
    assert TRAINING.splitlines()[step.line - 1].strip().startswith("def step")
    assert list(inputs_of(step)) == ["x"]
    assert step.kwargs == {"decay": 0.5}
    assert step.fn(*step.args, **step.kwargs).shape == ()  # a tf.function with a branch, still the method of its object


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize("function", ["", "step"])
@pytest.mark.parametrize("made", ["tf.function(trainer.step)", "tf.function(jit_compile=False)(trainer.step)"])
def test_a_step_that_a_call_of_tf_function_wraps_is_found_as_one_that_it_decorates(
    tmp_path: Path, made: str, function: str
) -> None:
    script = TRAINING.replace("    @tf.function\n", "").replace(
        "def prepared", "def main(trainer, x, step): step(x)\ndef prepared"
    )
    script = script.replace("trainer.step(tf.constant(x), decay=0.5)", f"main(trainer, tf.constant(x), {made})")
    step = step_of(tmp_path, script, function)
    assert step.name == "Trainer.step"
    assert script.splitlines()[step.line - 1].strip().startswith("def step")
    assert list(inputs_of(step)) == ["x"]
    assert step.fn(*step.args).shape == ()


@pytest.mark.usefixtures("devices")
def test_the_object_of_a_step_outlives_the_function_that_made_it(tmp_path: Path) -> None:
    text = f"""{HEAD}
class Trainer:
    def __init__(self):
        self.w = tf.Variable(2.0)

    @tf.function
    def step(self, x):
        with tf.device("CPU:0"):
            first = self.w * x
        with tf.device("CPU:1"):
            second = self.w * x
        self.w.assign_sub(1.0)
        return first + second

def main():
    trainer = Trainer()
    trainer.step(tf.constant(3.0))

main()
"""
    step = step_of(tmp_path, text, "")
    gc.collect()
    assert step.fn(*step.args) == 6.0


@pytest.mark.usefixtures("devices")
def test_a_program_that_writes_to_no_variable_is_checked_as_a_whole(tmp_path: Path) -> None:
    assert step_of(tmp_path, PREDICTION, "").name == "predict"
    assert step_of(tmp_path, PREDICTION, "model").name == "model"


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize(
    ("text", "function", "why"),
    [
        (PREDICTION, "train", "defines no function train"),
        ("x = 3", "", "defines no function"),
        ("\ndef step(x:\n    pass", "step", r"program.py:step: the script is no valid Python: line 2: "),
        (f"{HEAD}\ndef step(x):\n    return x\n", "step", "ended without calling step"),
        (f"{HEAD}\ndef step(x):\n    return x\nstep(1)\n", "", "no function of the script uses several devices"),
    ],
    ids=["unknown name", "no function", "no Python", "never called", "one device"],
)
def test_a_script_without_such_a_step_is_refused_in_one_line(
    tmp_path: Path, text: str, function: str, why: str
) -> None:
    with pytest.raises(InvalidTarget, match=why) as caught:
        step_of(tmp_path, text, function)
    assert "\n" not in str(caught.value)


def test_an_iterator_is_no_argument_that_two_runs_can_start_from() -> None:
    def step(batches: Iterator[float]) -> float:
        return next(batches)

    with pytest.raises(UsageError, match=r"batches is an iterator .* pass the batch itself"):
        inputs_of(StepCall("step", 1, step, (iter([np.ones(3)]),), {}))


@pytest.mark.usefixtures("devices")
def test_devices_are_those_that_the_script_names(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named_devices('a = "/GPU:2"; b = f"/device:CPU:{a}"; c = "A GPU: fast"; d = "gpu:0"') == {"GPU": 3, "CPU": 1}
    monkeypatch.setattr("tensorflow.config.list_physical_devices", lambda kind: [kind] * 2)
    assert spec_for('tf.device("/GPU:1")', None)[0] == "gpu:2"
    assert spec_for('tf.config.list_logical_devices("GPU")', None)[0] == "gpu:2"
    spec, why = spec_for('tf.device("/GPU:3")', None)
    assert (spec, why) == ("softgpu:4", "the script uses 4 GPUs, and this machine has 2")
    assert spec_for('tf.device(f"/CPU:{i}")', None)[0] == "cpu:2"
    assert spec_for('tf.device("/GPU:3")', "cores:2")[0] == "cores:2"
    assert spec_for(f'devices = harness.configure("{devices.spec}")', None)[0] is None
