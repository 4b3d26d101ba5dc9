"""Convolutions in every form that a GPU knows: dilated, grouped, with given padding, channels last and first."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable
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


def normal(shape: Iterable[int]) -> Array:
    return _RANDOM.standard_normal(tuple(shape)).astype(np.float32)


def convolved(x: Array, w: Array, stride: int, dilation: int, groups: int, padding: list[tuple[int, int]]) -> Array:
    """A convolution of any number of dimensions, channels last, by its definition."""
    taps = w.shape[:-2]
    x = np.pad(x, [(0, 0), *padding, (0, 0)])
    sizes = [(x.shape[i + 1] - (tap - 1) * dilation - 1) // stride + 1 for i, tap in enumerate(taps)]
    out = np.zeros((x.shape[0], *sizes, w.shape[-1]))
    each_in, each_out = w.shape[-2], w.shape[-1] // groups
    for group, tap in itertools.product(range(groups), np.ndindex(*taps)):
        starts = [at * dilation for at in tap]
        ends = [at + (size - 1) * stride + 1 for at, size in zip(starts, sizes, strict=True)]
        inside = (slice(None), *map(slice, starts, ends, itertools.repeat(stride)))
        window = x[inside]
        outputs = slice(group * each_out, (group + 1) * each_out)
        out[..., outputs] += window[..., group * each_in : (group + 1) * each_in] @ w[tap][:, outputs]
    return out


def assert_convolves(
    tf: Any,
    name: str,
    program: Callable[[Any, Any], Any],
    expected: Callable[[Array, Array], Array],
    x: Array,
    w: Array,
    first: bool,
) -> None:
    """Compare the result and both gradients of ``program`` with what a convolution is."""

    def in_form(image: Array) -> Array:
        return np.moveaxis(image, -1, 1) if first else image

    weights = normal(expected(x, w).shape)
    with tf.device("GPU:1"):
        image, kernel = tf.constant(in_form(x)), tf.constant(w)
        with tf.GradientTape() as tape:
            tape.watch([image, kernel])
            made = program(image, kernel)
            loss = tf.reduce_sum(made * in_form(weights))
        of_image, of_kernel = tape.gradient(loss, [image, kernel])
    assert {each.backing_device[-5:] for each in (made, of_image, of_kernel)} == {"GPU:1"}, name
    assert_close(name, made, in_form(expected(x, w)), 1e-3)
    # A convolution is linear in both: along any direction, the loss changes by that of the direction itself.
    along_x, along_w = normal(x.shape), normal(w.shape)
    found = [np.sum(of_image.numpy() * in_form(along_x)), np.sum(of_kernel.numpy() * along_w)]
    change = [np.sum(expected(along_x, w) * weights), np.sum(expected(x, along_w) * weights)]
    assert_close(name + ": gradients", found, change, 1e-2)


def deep() -> None:
    tf = start("softgpu:2x256")
    for form, (stride, dilation), groups in itertools.product(("NDHWC", "NCDHW"), ((1, 1), (2, 1), (1, 2)), (1, 2)):
        x, w = normal((2, 7, 6, 5, 4)), normal((3, 2, 2, 4 // groups, 6))
        first = form == "NCDHW"

        def steps(number: int, first: bool = first) -> list[int]:
            return [1, 1, *3 * [number]] if first else [1, *3 * [number], 1]

        assert_convolves(
            tf,
            f"conv3d, {form}, stride {stride}, dilation {dilation}, {groups} groups",
            lambda x, w: tf.nn.conv3d(x, w, steps(stride), "VALID", form, steps(dilation)),  # noqa: B023
            lambda x, w: convolved(x, w, stride, dilation, groups, [(0, 0)] * 3),  # noqa: B023
            x,
            w,
            first,
        )


def depthwise() -> None:
    tf = start("softgpu:2x256")
    for form, (stride, dilation) in itertools.product(("NHWC", "NCHW"), ((1, 1), (2, 1), (1, 2))):
        x, w = normal((2, 9, 8, 4)), normal((3, 3, 4, 2))
        first = form == "NCHW"
        steps = [1, 1, stride, stride] if first else [1, stride, stride, 1]

        def by_definition(x: Array, w: Array, stride: int = stride, dilation: int = dilation) -> Array:
            return convolved(x, w.reshape(3, 3, 1, 8), stride, dilation, 4, [(0, 0), (0, 0)])

        assert_convolves(
            tf,
            f"depthwise, {form}, stride {stride}, dilation {dilation}",
            lambda x, w: tf.nn.depthwise_conv2d(x, w, steps, "VALID", form, [dilation, dilation]),  # noqa: B023
            by_definition,
            x,
            w,
            first,
        )
        dilations = [1, 1, dilation, dilation] if first else [1, dilation, dilation, 1]
        with tf.device("GPU:1"):  # tf.nn takes dilations apart; the op has them as an attribute
            image = tf.constant(np.moveaxis(x, -1, 1) if first else x)
            made = tf.raw_ops.DepthwiseConv2dNative(
                input=image, filter=w, strides=steps, padding="VALID", data_format=form, dilations=dilations
            )
        expected = by_definition(x, w)
        assert_close(f"DepthwiseConv2dNative, {form}", made, np.moveaxis(expected, -1, 1) if first else expected, 1e-3)


def given_padding() -> None:
    tf = start("softgpu:2x256")
    padding, none = [(1, 2), (0, 3)], (0, 0)
    for form, groups in itertools.product(("NHWC", "NCHW"), (1, 2)):
        first = form == "NCHW"
        pairs = [none, none, *padding] if first else [none, *padding, none]
        assert_convolves(
            tf,
            f"conv2d with padding, {form}, {groups} groups",
            lambda x, w: tf.nn.conv2d(x, w, 2, pairs, form),  # noqa: B023
            lambda x, w: convolved(x, w, 2, 1, groups, padding),  # noqa: B023
            normal((2, 7, 6, 4)),
            normal((3, 3, 4 // groups, 6)),
            first,
        )
        steps = [1, 1, 2, 2] if first else [1, 2, 2, 1]
        assert_convolves(
            tf,
            f"depthwise with padding, {form}",
            lambda x, w: tf.nn.depthwise_conv2d(x, w, steps, pairs, form),  # noqa: B023
            lambda x, w: convolved(x, w.reshape(3, 3, 1, 8), 2, 1, 4, padding),
            normal((2, 7, 6, 4)),
            normal((3, 3, 4, 2)),
            first,
        )
        image = normal((2, 7, 6, 4))
        padded = np.pad(image, [none, *padding, none], constant_values=-np.inf)
        with tf.device("GPU:1"):
            largest = tf.nn.max_pool2d(
                tf.constant(np.moveaxis(image, -1, 1) if first else image), 4, 2, pairs, data_format=form
            )
        starts = itertools.product(range(0, 7, 2), range(0, 6, 2))
        windows = np.stack([padded[:, row : row + 4, column : column + 4].max(axis=(1, 2)) for row, column in starts])
        windows = np.moveaxis(windows, 0, 1).reshape(2, 4, 3, 4)
        assert_close(f"max_pool2d with padding, {form}", largest, np.moveaxis(windows, -1, 1) if first else windows)


def programs() -> None:
    run_all(deep, depthwise, given_padding)


def test_every_form_of_a_convolution_is_what_the_definition_says(fresh_process: Any) -> None:
    fresh_process(programs, timeout_s=_TIMEOUT_S)
