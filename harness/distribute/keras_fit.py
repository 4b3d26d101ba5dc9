"""Keras's own loop: ``compile`` and ``fit``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from harness.distribute.batches import Data
from harness.distribute.course import Recorder
from harness.distribute.session import Session, Watch


class KerasFit(Session):
    """``model.fit`` on the arrays, in their order. Metrics and the loss are running means, as Keras reports them."""

    loop = "fit"

    def set_up(self) -> None:
        """Compile. Without XLA: it would hide where ops run, and round in another way on one device alone."""
        made = self.training
        self.model.compile(optimizer=made.optimizer, loss=made.loss, metrics=list(made.metrics), jit_compile=False)
        # In mixed precision the model has another one from now on.
        self.training = replace(made, optimizer=self.model.optimizer, metrics=())
        if self.strategy.num_replicas_in_sync == 1:
            # Under a strategy fit makes the slots when it begins, and where it puts them is looked at. On one device
            # they can be made now, so that the training can be begun anew.
            self.optimizer.build(self.model.trainable_variables)

    def take_steps(self, data: Data, steps: int, recorder: Recorder, watch: Watch | None) -> None:
        """Take the steps, and where they are to be watched one more, which is not recorded."""
        import tensorflow as tf

        session = self

        class Record(tf.keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002
                logs = {name: float(value) for name, value in (logs or {}).items()}
                session.record(recorder, logs.pop("loss", math.nan), logs)
                if len(recorder.iterations) == steps:
                    self.model.stop_training = True

        epochs = -(-steps // data.batches)
        self._fit(data, epochs, [Record()])
        if watch is not None:
            x, y = data.batch(0)
            watch(lambda: self._fit(Data(x, y, data.batch_size), 1, []))

    def _fit(self, data: Data, epochs: int, callbacks: list[Any]) -> None:
        self.model.fit(
            data.x, data.y, batch_size=data.batch_size, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks
        )
