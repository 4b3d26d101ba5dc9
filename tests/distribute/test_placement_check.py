"""The callback that watches a training, under one ``MirroredStrategy``: each fault beside the same done right."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

from harness.distribute import PlacementCheck
from harness.errors import TrainingError

FreshProcess = Callable[..., CompletedProcess[str]]


def _trainings() -> None:
    import numpy as np
    import pytest
    import tensorflow as tf

    import harness
    from harness.errors import VerificationError

    devices = harness.configure("cpu:2")
    strategy = tf.distribute.MirroredStrategy(list(devices.names))
    keras, layers = tf.keras, tf.keras.layers
    x, y = np.random.default_rng(0).normal(size=(2, 48, 4)).astype("float32")

    class At(tf.keras.callbacks.Callback):  # type: ignore[misc]
        """Call a function with the model before a step."""

        def __init__(self, step: int, act: Callable[[Any], None]) -> None:
            super().__init__()
            self.step, self.act = step, act

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == self.step:
                self.act(self.model)

    class OnFirst(tf.keras.layers.Layer):  # type: ignore[misc]
        """A layer that works on the first device, on whichever replica it is called."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = layers.Dense(4)

        def call(self, inputs: Any) -> Any:
            with tf.device(devices[0].name):
                return self.inner(inputs)

    def fit(*parts: Any, acts: Any = (), **options: Any) -> PlacementCheck:
        with strategy.scope():
            model = keras.Sequential([keras.Input((4,)), *[part() for part in parts]])
            model.compile("adam", "mse", metrics=["mae"])
        check = PlacementCheck(**{"every": 4, **options})
        # The callbacks that act come first: the check of a step sees what they did.
        model.fit(x, y, batch_size=4, epochs=1, shuffle=False, verbose=0, callbacks=[*acts, check])
        return check

    def dense() -> Any:
        return layers.Dense(4, name="hand")

    def frozen() -> Any:
        return layers.Dense(4, name="cold", trainable=False)

    def changed(name: str, by: float = 1e-6) -> Callable[[Any], None]:
        def act(model: Any) -> None:
            (variable,) = [each for each in [*model.variables, *model.optimizer.variables] if each.path.endswith(name)]
            strategy.experimental_local_results(variable.value)[1].assign_add([by] * 4)

        return act

    # Right ones: the layers' own statistics, random numbers and metrics may differ.
    right = fit(dense, layers.BatchNormalization, lambda: layers.Dropout(0.5), frozen)
    assert right.verdict is harness.Verdict.PASS, right
    assert right.checks == 1 + 4  # a trace, and comparisons after 1, 4, 8 and 12 of 12 steps
    assert repr(right) == "<PlacementCheck PASS: 5 checks without a finding>"

    # A replica's variable, or slot, or frozen weight that was changed by hand is found at the next check.
    for name in ("hand/bias", "hand_bias_momentum", "cold/bias"):
        with pytest.raises(VerificationError) as caught:
            fit(dense, frozen, acts=[At(5, changed(name))])
        (line,) = str(caught.value).splitlines()
        assert line.startswith("[H301 sync] ")
        for text in (name, ", step 7 (fit) on CPU:1: ", "differs from the first replica's copy"):
            assert text in line, line
        assert caught.value.findings[0].kind == "sync"
    found = fit(dense, acts=[At(5, changed("/bias", float("nan")))], raises=False)
    assert found.verdict is harness.Verdict.FAIL
    assert [finding.kind for finding in found.findings] == ["sync"]
    assert "sync" in repr(found)

    # Forward work of all replicas on one device: their backward ops are elsewhere.
    with pytest.raises(VerificationError, match=r"^\[H202 gradient-placement\] .*replica_1"):
        fit(OnFirst)

    # An exception of the step ends its trace, and the next training is checked.
    class Broken(tf.keras.layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                raise ValueError("of the user")
            return inputs

    with pytest.raises(ValueError, match="of the user"):
        fit(Broken)
    assert fit(dense).verdict is harness.Verdict.PASS

    # Towers of its own, without a strategy.
    class Towers(tf.keras.Model):  # type: ignore[misc]
        colocated = False

        def __init__(self) -> None:
            super().__init__()
            self.w = self.add_weight(shape=(4, 4))

        def train_step(self, data: Any) -> Any:
            gradient = harness.colocate_gradients(self.gradient) if self.colocated else self.gradient
            loss, of_weights = gradient(*data)
            self.optimizer.apply_gradients([(of_weights, self.w)])
            return {"loss": loss}

        def gradient(self, x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                losses = []
                for device, a, b in zip(devices, tf.split(x, 2), tf.split(y, 2), strict=True):
                    with tf.device(device.name):
                        losses.append(tf.reduce_sum((tf.tanh(a @ self.w) - b) ** 2))
                loss = tf.add_n(losses)
            return loss, tape.gradient(loss, self.w)

    for colocated in (True, False):
        model = Towers()
        model.colocated = colocated
        model.compile("sgd")
        check = PlacementCheck(devices=devices, raises=False)
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[check])
        kinds = [finding.kind for finding in check.findings]
        assert kinds == ([] if colocated else ["gradient-placement"]), check
        assert check.checks == 1
        alone = PlacementCheck()
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[alone])
        assert alone.verdict is harness.Verdict.UNKNOWN
        assert "the model trains on one device" in repr(alone)


def test_a_right_training_passes_and_each_fault_is_found(fresh_process: FreshProcess) -> None:
    done = fresh_process(_trainings)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("every", [0, -1, True, 1.5, "10"])
def test_a_wrong_number_of_steps_is_refused_in_one_line(every: Any) -> None:
    with pytest.raises(TrainingError, match=rf"^PlacementCheck: every={every!r}; accepted: a number of steps"):
        PlacementCheck(every=every)


def test_keras_takes_it_for_one_of_its_callbacks_and_need_not_wait_for_steps() -> None:
    import tensorflow as tf

    class Own(PlacementCheck):
        pass

    for check in (PlacementCheck(), Own(10)):
        assert isinstance(check, tf.keras.callbacks.Callback)
        assert isinstance(check, PlacementCheck)
        # With a hook of its own for the end of a batch, Keras waits for the results of each step.
        for hook in ("on_batch_end", "on_train_batch_end"):
            assert getattr(type(check), hook) is getattr(tf.keras.callbacks.Callback, hook)
    assert repr(PlacementCheck()) == "<PlacementCheck UNKNOWN: no step was checked>"
