"""Convolutions, pooling, batch norm, resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.proof.evaluation import Entry, Evaluation, Rule
from harness.proof.sizes import Unprovable
from harness.proof.terms import SUM, Map, Poly


def channel_of(op: Any, rank: int) -> int:
    """The axis of the channels. The batch is axis 0."""
    layout = op.get_attr("data_format").decode()
    if layout not in ("NHWC", "NCHW", "NDHWC", "NCDHW"):
        raise Unprovable(f"the layout {layout}")
    return 1 if layout.startswith("NC") else rank - 1


def _convolution(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
    x, filters = args
    channel, last = channel_of(op, len(x.shape)), len(filters.shape) - 1
    maps: list[Map] = [((0, None), 0)]
    if x.shape[channel] == filters.shape[-2]:  # without groups
        maps += [((None, last), channel), ((channel, last - 1), SUM)]
    return maps


def channels(count: int) -> Callable[[Any, Sequence[Poly], int], list[Map]]:
    """So many arguments, each row by row, and channel by channel where windows and steps keep these apart."""

    def maps(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
        channel = channel_of(op, len(args[0].shape))
        found: list[Map] = [((0,) * count, 0)]
        sizes = [op.get_attr(name) for name in ("ksize", "strides")]
        if all(size[channel] == 1 for size in sizes):
            found.append(((channel,) * count, channel))
        return found if all(size[0] == 1 for size in sizes) else []

    return maps


def _batch_norm(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
    return [((0, None, None, None, None), 0)] if index == 0 and not op.get_attr("is_training") else []


def _batch_norm_grad(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
    if op.get_attr("is_training") or index > 2:
        return []
    return [((0, 0, None, None, None), 0 if index == 0 else SUM)]


def _bias_add(ev: Evaluation, op: Any, x: Poly, b: Poly) -> Poly:
    channel = channel_of(op, len(x.shape))
    return ev.alg.add(x, ev.alg.reshape(b, (b.shape[0], *[1] * (len(x.shape) - channel - 1))))


def _bias_add_grad(ev: Evaluation, op: Any, g: Poly) -> Poly:
    channel = channel_of(op, len(g.shape))
    return ev.alg.sum(g, [k for k in range(len(g.shape)) if k != channel])


_TO_INPUT = Rule(lambda op, args, i: [((None, 0), 0)], (0, 1), only_shape=(0,), total=True)
_TO_FILTER = Rule(lambda op, args, i: [((0, 0), SUM)], (0, 1), only_shape=(1,), total=True)

RULES: dict[str, Entry] = {
    "Conv2D": Rule(_convolution, (0, 1), total=True),
    "Conv3D": Rule(_convolution, (0, 1), total=True),
    "DepthwiseConv2dNative": Rule(lambda op, args, i: [((0, None), 0)], (0, 1), total=True),
    "Conv2DBackpropInput": _TO_INPUT,
    "Conv3DBackpropInputV2": _TO_INPUT,
    "DepthwiseConv2dNativeBackpropInput": _TO_INPUT,
    "Conv2DBackpropFilter": _TO_FILTER,
    "Conv3DBackpropFilterV2": _TO_FILTER,
    "DepthwiseConv2dNativeBackpropFilter": _TO_FILTER,
    "MaxPool": Rule(channels(1), total=True),
    "AvgPool": Rule(channels(1), (0,), total=True),
    "MaxPoolGrad": Rule(channels(3), (2,), total=True),
    "AvgPoolGrad": Rule(channels(1), (0,), only_shape=(0,), total=True),
    "FusedBatchNormV3": Rule(_batch_norm),
    "FusedBatchNormGradV3": Rule(_batch_norm_grad, (0,), only_shape=(5,)),
    "ResizeBilinear": Rule(lambda op, args, i: [((0, None), 0)], (0,), total=True),
    "ResizeNearestNeighbor": Rule(lambda op, args, i: [((0, None), 0)], (0,), total=True),
    "ResizeNearestNeighborGrad": Rule(lambda op, args, i: [((0, None), 0)], (0,), total=True),
    "BiasAdd": _bias_add,
    "BiasAddGrad": _bias_add_grad,
}
