"""GPU kernels that the CPU has under another op: fused batch normalization, and cuDNN's CTC loss."""

from __future__ import annotations

import itertools
import shutil
from typing import Any

import numpy as np
import pytest
from softgpu_programs import assert_close, run_all, start

from harness.softgpu.compiler import NAMES

_TIMEOUT_S = 900
_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")


def fused_norms() -> None:
    """On a GPU, the graph optimizer joins a normalization, an addition and the activation."""
    tf = start("softgpu:2x256")
    scale = tf.range(1.0, 5.0)

    def program(x: Any, side: bool, form: str) -> Any:
        y, *_ = tf.compat.v1.nn.fused_batch_norm(
            x, scale, scale, scale / 10, scale * 2, is_training=False, data_format=form
        )
        return tf.nn.relu(y + x if side else y)

    for dtype, form, side in itertools.product(("float32", "float16", "bfloat16"), ("NHWC", "NCHW"), (False, True)):
        x = tf.random.stateless_normal((2, 4, 6, 4), (1, 2))
        with tf.device("CPU:0"):
            expected = program(x, side, "NHWC").numpy()
        moved = tf.cast(tf.transpose(x, (0, 3, 1, 2)) if form == "NCHW" else x, dtype)
        with tf.device("GPU:1"):
            found = tf.function(program)(moved, side, form)
        assert found.backing_device.endswith("GPU:1")
        assert found.dtype == dtype
        values = tf.cast(found, tf.float32).numpy()
        values = np.moveaxis(values, 1, -1) if form == "NCHW" else values
        assert_close(f"{dtype}, {form}, side: {side}", values, expected, 1e-4 if dtype == "float32" else 0.1)


def ctc() -> None:
    """On a GPU, the blank is moved to the first class, and cuDNN computes the loss and its gradient."""
    tf = start("softgpu:2x256")
    logits = tf.random.stateless_normal((5, 2, 4), (1, 1))
    for blank, (first, second, third) in {0: (1, 2, 2), 1: (0, 2, 3), 3: (0, 2, 1), -1: (1, 1, 0)}.items():
        labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [first, second, third], [2, 2])

        def loss(logits: Any, labels: Any = labels, blank: int = blank) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(logits)
                each = tf.nn.ctc_loss(labels, logits, None, [5, 4], blank_index=blank)
            return each, tape.gradient(each, logits)

        with tf.device("CPU:0"):
            expected = loss(logits)
        for program in (loss, tf.function(loss)):
            with tf.device("GPU:1"):
                found = program(logits)
            assert found[1].backing_device.endswith("GPU:1")
            assert_close(f"blank {blank}", found, expected)


def programs() -> None:
    run_all(fused_norms, ctc)


def test_fused_normalization_and_the_loss_of_cudnn_are_computed(fresh_process: Any) -> None:
    fresh_process(programs, timeout_s=_TIMEOUT_S)
