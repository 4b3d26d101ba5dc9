"""What the CPU's kernels do not do, and a GPU's do: image layouts, gradients of convolutions, cuDNN's networks."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from softgpu_programs import assert_close, run_all, start

from harness.softgpu.compiler import NAMES

_TIMEOUT_S = 900
_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")

Array = np.ndarray[Any, Any]
_RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def convolved(x: Array, w: Array, stride: int, dilation: int, groups: int) -> Array:
    """A convolution without padding, channels last, by its definition."""
    height = (x.shape[1] - (w.shape[0] - 1) * dilation - 1) // stride + 1
    width = (x.shape[2] - (w.shape[1] - 1) * dilation - 1) // stride + 1
    out = np.zeros((x.shape[0], height, width, w.shape[3]))
    each_in, each_out = w.shape[2], w.shape[3] // groups
    for group, row, column in itertools.product(range(groups), range(w.shape[0]), range(w.shape[1])):
        top, left = row * dilation, column * dilation
        window = x[:, top : top + height * stride : stride, left : left + width * stride : stride]
        window = window[:, :height, :width, group * each_in : (group + 1) * each_in]
        outputs = slice(group * each_out, (group + 1) * each_out)
        out[..., outputs] += window @ w[row, column, :, outputs]
    return out


def convolutions() -> None:
    tf = start("softgpu:2x256")
    for form, (stride, dilation), groups in itertools.product(("NHWC", "NCHW"), ((1, 1), (2, 1), (1, 2)), (1, 2)):
        x, w = normal(2, 9, 8, 4), normal(3, 3, 4 // groups, 6)
        expected = convolved(x, w, stride, dilation, groups)
        weights = normal(*expected.shape)

        def in_form(image: Array, form: str = form) -> Array:
            return np.moveaxis(image, -1, 1) if form == "NCHW" else image

        with tf.device("GPU:1"):
            image, kernel = tf.constant(in_form(x)), tf.constant(w)
            with tf.GradientTape() as tape:
                tape.watch([image, kernel])
                made = tf.nn.conv2d(image, kernel, stride, "VALID", data_format=form, dilations=dilation)
                loss = tf.reduce_sum(made * in_form(weights))
            of_image, of_kernel = tape.gradient(loss, [image, kernel])
            if groups == 1:  # TensorFlow's Conv takes no more, on any device
                channels = 1 if form == "NCHW" else 3
                raw = tf.raw_ops.Conv(
                    input=image,
                    filter=kernel,
                    strides=[1 if axis in (0, channels) else stride for axis in range(4)],
                    padding="VALID",
                    data_format="CHANNELS_FIRST" if form == "NCHW" else "CHANNELS_LAST",
                    dilations=[1 if axis in (0, channels) else dilation for axis in range(4)],
                    groups=groups,
                )
        name = f"{form}, stride {stride}, dilation {dilation}, {groups} groups"
        if groups == 1:
            assert_close(f"Conv, {name}", raw, in_form(expected), 1e-3)
        assert_close(name, made, in_form(expected), 1e-3)
        # A convolution is linear in both: along any direction, the loss changes by that of the direction itself.
        along_image, along_kernel = normal(*x.shape), normal(*w.shape)
        found = [
            np.sum(of_image.numpy() * in_form(along_image)),
            np.sum(of_kernel.numpy() * along_kernel),
        ]
        change = [
            np.sum(convolved(along_image, w, stride, dilation, groups) * weights),
            np.sum(convolved(x, along_kernel, stride, dilation, groups) * weights),
        ]
        assert_close(name + ": gradients", found, change, 1e-2)


def sum_of_much() -> None:
    tf = start("softgpu:2x256")

    @tf.function  # type: ignore[untyped-decorator]
    def added(x: Any) -> Any:
        with tf.device("GPU:1"):
            return tf.add_n([tf.tanh(x * number) for number in range(1, 5)])

    # TensorFlow expects it to need more than the GPU has, and would add up in a variable of TensorFlow 1.
    x = np.ones((10, 1 << 20), np.float32)
    assert_close("sum", added(x)[0, 0], sum(np.tanh(np.arange(1.0, 5.0))))


def image_ops() -> None:
    tf = start("softgpu:2x256")
    flat, deep, scale = normal(2, 8, 6, 4), normal(2, 6, 4, 4, 4), normal(4)
    flat_forms, deep_forms = ("NHWC", "NCHW"), ("NDHWC", "NCDHW")
    raw = tf.raw_ops
    ones = [1, 1, 1, 1]

    def windows(form: str) -> list[int]:
        return [1, 1, 2, 3] if form == "NCHW" else [1, 2, 3, 1]

    programs: dict[str, tuple[tuple[str, str], Callable[..., Any], tuple[Array, ...]]] = {
        "max_pool2d": (flat_forms, lambda f, x: tf.nn.max_pool2d(x, [2, 3], [2, 1], "SAME", data_format=f), (flat,)),
        "avg_pool2d": (flat_forms, lambda f, x: tf.nn.avg_pool2d(x, [2, 3], [2, 1], "SAME", data_format=f), (flat,)),
        "MaxPoolV2": (
            flat_forms,
            lambda f, x: raw.MaxPoolV2(input=x, ksize=windows(f), strides=ones, padding="SAME", data_format=f),
            (flat,),
        ),
        "depthwise": (
            flat_forms,
            lambda f, x, w: raw.DepthwiseConv2dNative(
                input=x, filter=w, strides=ones, padding="SAME", data_format=f, dilations=ones
            ),
            (flat, normal(3, 3, 4, 2)),
        ),
        "bias_add": (flat_forms, lambda f, x, b: tf.nn.bias_add(x, b, data_format=f), (flat, scale)),
        "batch norm": (
            flat_forms,
            lambda f, x, s, b: raw.FusedBatchNormV3(x=x, scale=s, offset=b, mean=[], variance=[], data_format=f)[0],
            (flat, scale, scale),
        ),
        "space_to_depth": (flat_forms, lambda f, x: tf.nn.space_to_depth(x, 2, data_format=f), (flat,)),
        "depth_to_space": (flat_forms, lambda f, x: tf.nn.depth_to_space(x, 2, data_format=f), (flat,)),
        "conv3d": (
            deep_forms,
            lambda f, x, w: tf.nn.conv3d(x, w, [1] * 5, "SAME", data_format=f),
            (deep, normal(3, 3, 2, 4, 5)),
        ),
        "max_pool3d": (deep_forms, lambda f, x: tf.nn.max_pool3d(x, 2, 2, "VALID", data_format=f), (deep,)),
        "avg_pool3d": (deep_forms, lambda f, x: tf.nn.avg_pool3d(x, 2, 2, "VALID", data_format=f), (deep,)),
    }
    for name, (forms, program, arrays) in programs.items():
        results = [
            values_and_gradients(tf, device, form, form == forms[1], program, arrays)
            for device, form in (("CPU:0", forms[0]), ("GPU:1", forms[0]), ("GPU:1", forms[1]))
        ]
        assert_close(name, results[1], results[0], 1e-3)
        assert_close(f"{name}, {forms[1]}", results[2], results[0], 1e-3)


def values_and_gradients(
    tf: Any, device: str, form: str, first: bool, program: Callable[..., Any], arrays: tuple[Array, ...]
) -> list[Array]:
    """The result and the gradients of a program, with the channels last again."""

    def turned(image: Array) -> Array:
        return np.moveaxis(image, -1, 1) if first else image

    def back(image: Any) -> Array:
        return np.moveaxis(image.numpy(), 1, -1) if first else np.asarray(image.numpy())

    with tf.device(device):
        inputs = [tf.constant(turned(arrays[0])), *map(tf.constant, arrays[1:])]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            made = program(form, *inputs)
            size = back(made).shape
            weights = np.cos(np.arange(np.prod(size), dtype=np.float32)).reshape(size)
            loss = tf.reduce_sum(made * turned(weights))
        gradients = tape.gradient(loss, inputs)
    return [back(made), back(gradients[0]), *(gradient.numpy() for gradient in gradients[1:])]


def recurrent() -> None:
    tf = start("softgpu:2x256")
    x = normal(3, 5, 4)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]], bool)
    for kind, masked in itertools.product((tf.keras.layers.LSTM, tf.keras.layers.GRU), (False, True)):
        layer = kind(6, return_sequences=True, return_state=True)
        layer.build(x.shape)
        for weights in layer.trainable_variables:
            weights.assign(0.5 * normal(*weights.shape))
        results = []
        for cudnn, device in (("auto", "GPU:1"), (False, "CPU:0")):
            layer.use_cudnn = cudnn

            @tf.function  # type: ignore[untyped-decorator]
            def step(x: Any, layer: Any = layer, masked: bool = masked) -> Any:
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    sequence, *states = layer(x, mask=tf.constant(mask)) if masked else layer(x)
                    if masked:  # beyond the end of a row, cuDNN gives zeros and Keras the last output
                        sequence *= tf.constant(mask[..., None].astype(np.float32))
                    loss = tf.reduce_sum(sequence**2) + sum(3 * tf.reduce_sum(state) for state in states)
                return sequence, states, tape.gradient(loss, [x, *layer.trainable_variables])

            graph = step.get_concrete_function(tf.TensorSpec(x.shape)).graph
            kinds = {op.type for op in graph.get_operations()}
            assert ({"CudnnRNNV3", "CudnnRNNBackpropV3"} <= kinds) == (cudnn == "auto"), kinds
            with tf.device(device):
                results.append(step(tf.constant(x)))
        assert_close(f"{kind.__name__}, masked: {masked}", results[0], results[1], 1e-3)
    for mode in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        _deep_and_both_ways(tf, mode)


def _deep_and_both_ways(tf: Any, mode: str) -> None:
    """Two layers in both directions on rows of two lengths: the gradient is that of differences, in float64."""
    gates = {"lstm": 4, "gru": 3}.get(mode, 1)
    hidden, inputs = 3, 2
    parameters = 2 * gates * hidden * ((inputs + hidden) + (2 * hidden + hidden)) + 4 * 2 * gates * hidden
    shapes = ((3, 2, inputs), (4, 2, hidden), (4, 2, hidden), (parameters,))
    arrays = [0.5 * _RANDOM.standard_normal(shape) for shape in shapes]
    weights = [_RANDOM.standard_normal(shape) for shape in ((3, 2, 2 * hidden), (4, 2, hidden), (4, 2, hidden))]

    def loss(*arguments: Any) -> Any:
        made = tf.raw_ops.CudnnRNNV3(
            **dict(zip(("input", "input_h", "input_c", "params"), arguments, strict=True)),
            sequence_lengths=[3, 2],
            rnn_mode=mode,
            direction="bidirectional",
        )
        used = zip(made[: 3 if mode == "lstm" else 2], weights, strict=False)
        return sum(tf.reduce_sum(output * weight) for output, weight in used)

    with tf.device("GPU:0"):
        arguments = [tf.constant(array) for array in arrays]
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            value = loss(*arguments)
        gradients = tape.gradient(value, arguments)
        for at, gradient in enumerate(gradients):
            if at == 2 and mode != "lstm":  # has no cell
                continue
            direction = _RANDOM.standard_normal(shapes[at])
            moved = [
                [*arguments[:at], arguments[at] + sign * 1e-6 * direction, *arguments[at + 1 :]] for sign in (1, -1)
            ]
            difference = float(loss(*moved[0]) - loss(*moved[1])) / 2e-6
            assert_close(f"{mode}: input {at}", [np.sum(gradient.numpy() * direction)], [difference], 1e-6)


_IMAGES = normal(2, 8, 6, 3)


def crops() -> None:
    """Their CPU kernels are asynchronous, and so are those of a GPU."""
    tf = start("softgpu:2x256")
    results = []
    for device in ("CPU:0", "GPU:1"):
        with tf.device(device):
            images, boxes = tf.constant(_IMAGES), tf.constant([[0.1, 0.0, 0.7, 0.9], [0.2, 0.3, 1.0, 0.6]])
            with tf.GradientTape() as tape:
                tape.watch([images, boxes])
                made = tf.image.crop_and_resize(images, boxes, [1, 0], (4, 5))
                loss = tf.reduce_sum(made**2)
            results.append([made, *tape.gradient(loss, [images, boxes])])
    assert_close("crop_and_resize", results[1], results[0])


def sums_of_16_bits() -> None:
    """A GPU adds up in float32: a quarter in each of so many places gives the exact sum, which bfloat16 loses at 64."""
    tf = start("softgpu:2x256")
    raw, ones4, ones5 = tf.raw_ops, [1] * 4, [1] * 5
    for dtype in (tf.float16, tf.bfloat16):

        def quarters(*shape: int, dtype: Any = dtype) -> Any:
            return tf.fill(shape, tf.constant(0.25, dtype))

        image, volume, deep = quarters(1, 32, 32, 64), quarters(1, 8, 8, 8, 64), quarters(1, 64, 64, 64)
        found = {
            "Einsum": (tf.einsum("ij,jk->ik", quarters(3, 4096), quarters(4096, 2)), 256),
            "BiasAddGrad": (raw.BiasAddGrad(out_backprop=quarters(4096, 3)), 1024),
            "BiasAddGrad, NCHW": (raw.BiasAddGrad(out_backprop=quarters(4, 3, 32, 32), data_format="NCHW"), 1024),
            "Conv2D": (tf.nn.conv2d(image, quarters(8, 8, 64, 2), 1, "VALID"), 256),
            "Conv2D, NCHW": (tf.nn.conv2d(deep, quarters(8, 8, 64, 2), 1, "VALID", data_format="NCHW"), 256),
            "Conv2DBackpropFilter": (raw.Conv2DBackpropFilter(
                input=quarters(1, 64, 64, 2), filter_sizes=[1, 1, 2, 2], out_backprop=quarters(1, 64, 64, 2),
                strides=ones4, padding="VALID"), 256),
            "Conv3D": (tf.nn.conv3d(volume, quarters(4, 4, 4, 64, 2), ones5, "VALID"), 256),
            "depthwise": (tf.nn.depthwise_conv2d(image, 4 * quarters(32, 32, 64, 1), ones4, "VALID"), 256),
            "AvgPool": (tf.nn.avg_pool2d(image, 32, 1, "VALID"), 0.25),
            "AvgPool3D": (tf.nn.avg_pool3d(volume, 8, 1, "VALID"), 0.25),
        }  # fmt: skip
        for name, (sums, expected) in found.items():
            assert sums.dtype == dtype, name
            assert sums.backing_device.endswith("GPU:0"), name
            assert_close(f"{name}, {dtype.name}", tf.cast(sums, tf.float32), tf.fill(sums.shape, float(expected)), 0)
        with tf.GradientTape() as tape:
            cube = tf.cast(tf.reshape(tf.range(8.0), (1, 2, 2, 2, 1)), dtype)
            tape.watch(cube)
            largest = tf.nn.max_pool3d(cube, 2, 1, "VALID")
        assert float(largest[0, 0, 0, 0, 0]) == 7.0
        assert tf.reshape(tape.gradient(largest, cube), [-1]).numpy().tolist() == [0.0] * 7 + [1.0]
    # Here the CPU has no kernel for 16 bits at all.
    for adjust in (tf.image.adjust_contrast, tf.image.adjust_hue, tf.image.adjust_saturation):
        assert adjust(tf.ones((4, 4, 3), tf.float16), 0.5).dtype == tf.float16
    assert tf.math.rint(tf.constant([1.75], tf.float16)).numpy().tolist() == [2.0]


def programs() -> None:
    run_all(convolutions, image_ops, recurrent, crops, sums_of_16_bits, sum_of_much)


def test_kernels_compute_what_a_gpu_computes(fresh_process: Any) -> None:
    fresh_process(programs, timeout_s=_TIMEOUT_S)
