"""A custom loop under DTensor: the forward and backward passes run on a mesh of devices, the optimizer on the host.

Keras 3's variables have no layout. So each step copies the weights to the mesh and calls the model with these copies;
the gradients come back to the host, where the optimizer updates the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harness.distribute.history import History, Recorder
from harness.distribute.loops import CustomLoop, share_of_loss
from harness.distribute.session import Watch, named_variables
from harness.distribute.training import Data, row_digests
from harness.errors import TrainingError
from harness.lazy import tf

#: The only dimension of the mesh.
_DIMENSION = "devices"


class DTensorLoop(CustomLoop):
    """``shards`` is what is divided: ``"data"``, the rows of the batch; ``"model"``, the columns of the weights."""

    def lay_out(self, shards: str, devices: Sequence[str]) -> None:
        """Make the mesh."""
        dtensor = tf.experimental.dtensor
        self.shards, self.devices = shards, tuple(devices)
        self._mesh = dtensor.create_mesh([(_DIMENSION, len(self.devices))], devices=list(self.devices))
        self._layouts = [self._layout_of(tuple(variable.shape)) for variable in self.model.trainable_variables]
        if shards == "model" and all(layout.is_fully_replicated() for layout in self._layouts):
            raise TrainingError(
                f"no weight has columns that can be divided among {len(self.devices)} devices; use layers whose units "
                "are a multiple of the number of devices"
            )

        @tf.function  # type: ignore[untyped-decorator]
        def step(weights: Any, others: Any, x: Any, y: Any, rows: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(weights)
                predicted, _ = self.model.stateless_call(weights, others, x, training=True)
                loss = share_of_loss(self.training.loss, y, predicted, rows)
            return loss, tape.gradient(loss, weights)

        self._step = step

    def take_steps(self, data: Data, steps: int, recorder: Recorder, watch: Watch | None) -> None:  # noqa: ARG002
        """Take the steps, unwatched: ops on a mesh cannot be traced."""
        dtensor = tf.experimental.dtensor
        variables = self.model.trainable_variables
        self._places: dict[str, tuple[str, ...]] = {}
        for number in range(steps):
            x, y = data.batch(number)
            if self.shards == "data" and len(x) % len(self.devices):
                raise TrainingError(
                    f"the batch of step {number} has {len(x)} rows, which DTensor cannot divide among "
                    f"{len(self.devices)} devices; choose batch_size and the number of rows so that every batch "
                    "divides evenly"
                )
            rows_layout = [_DIMENSION] if self.shards == "data" else [dtensor.UNSHARDED]
            on_mesh = [self._on_mesh(each, [*rows_layout, *[dtensor.UNSHARDED] * (each.ndim - 1)]) for each in (x, y)]
            weights = [
                dtensor.relayout(self._on_mesh(variable.value.numpy()), layout)
                for variable, layout in zip(variables, self._layouts, strict=True)
            ]
            others = [self._on_mesh(variable.value.numpy()) for variable in self.model.non_trainable_variables]
            rows = self._on_mesh(np.int32(len(x)))
            loss, gradients = self._step(weights, others, *on_mesh, rows)
            self._record_parts(recorder, on_mesh, variables, weights)
            whole = [self._fetched(gradient) for gradient in gradients]
            for name, gradient in zip(named_variables(variables), whole, strict=True):
                recorder.add("gradient", name, gradient)
            self.optimizer.apply_gradients(
                [(tf.constant(gradient), variable) for gradient, variable in zip(whole, variables, strict=True)]
            )
            self.record(recorder, float(self._fetched(loss)), {})

    def run(self, initial: Sequence[Any], data: Data, steps: int, watch: Watch | None = None) -> History:
        """Take the steps; the replicas and the devices of variables are those of the mesh."""
        history = super().run(initial, data, steps, watch)
        return replace(history, replicas=len(self.devices), devices=self.devices, variable_devices=self._places)

    def _layout_of(self, shape: tuple[int, ...]) -> Any:
        """Divide the columns, the last axis, where possible; otherwise every device has a whole copy."""
        dtensor = tf.experimental.dtensor
        divided = self.shards == "model" and shape and shape[-1] % len(self.devices) == 0
        parts = [dtensor.UNSHARDED] * len(shape)
        return dtensor.Layout([*parts[:-1], _DIMENSION] if divided else parts, self._mesh)

    def _on_mesh(self, array: Any, layout: list[str] | None = None) -> Any:
        dtensor = tf.experimental.dtensor
        array = np.asarray(array)
        whole = dtensor.copy_to_mesh(tf.constant(array), dtensor.Layout.replicated(self._mesh, array.ndim))
        return whole if layout is None else dtensor.relayout(whole, dtensor.Layout(layout, self._mesh))

    def _fetched(self, tensor: Any) -> Any:
        dtensor = tf.experimental.dtensor
        rank = len(tensor.shape)
        whole = dtensor.relayout(tensor, dtensor.Layout.replicated(self._mesh, rank))
        return dtensor.unpack(whole)[0].numpy()

    def _record_parts(self, recorder: Recorder, batch: Sequence[Any], variables: Sequence[Any], weights: Any) -> None:
        """Record each device's rows, the devices of the parts of the weights, and whole copies that differ."""
        dtensor = tf.experimental.dtensor
        x, y = (dtensor.unpack(each) for each in batch)
        parts = [row_digests(one.numpy(), other.numpy()) for one, other in zip(x, y, strict=True)]
        # With divided weights all devices work on the same rows, which count once.
        recorder.rows.append(tuple(parts if self.shards == "data" else parts[:1]))
        for name, weight, layout in zip(named_variables(variables), weights, self._layouts, strict=True):
            held = dtensor.unpack(weight)
            self._places[name] = tuple(str(part.backing_device) for part in held)
            if layout.is_fully_replicated():
                first = held[0].numpy()
                for part in held[1:]:
                    if part.numpy().tobytes() != first.tobytes():
                        recorder.add_different_copy(name, str(part.backing_device), part.numpy(), first)
