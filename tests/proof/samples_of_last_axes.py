"""More samples: operations on the last axes of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from proof_pairs import array
from samples import SAMPLES, add_sample, integers, of_complex, positive, raw_sample

__all__ = ["SAMPLES"]


def _definite(*shape: int, seed: int = 0) -> Any:
    x = array(*shape, seed=seed)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1], dtype="float32")


for _name in ["Cholesky", "MatrixInverse", "MatrixDeterminant", "MatrixSquareRoot"]:
    raw_sample(_name, _definite(4, 3, 3), names="input")
for _name in ["LogMatrixDeterminant", "Qr", "Svd", "SelfAdjointEigV2"]:
    raw_sample(_name, _definite(4, 3, 3), names="input")
for _name in ["MatrixSolve", "MatrixTriangularSolve"]:
    raw_sample(_name, np.tril(_definite(4, 3, 3)), array(4, 3, 2), names="matrix rhs")
raw_sample("CholeskyGrad", np.linalg.cholesky(_definite(4, 3, 3)), array(4, 3, 3), names="l grad")
raw_sample("Cross", array(4, 3), array(4, 3, seed=1), names="a b")
for _name, _rank in (("FFT", 1), ("FFT2D", 2), ("FFT3D", 3)):
    _sizes = [2] * _rank
    for _way in (_name, f"I{_name}"):
        of_complex(_way, 5, *_sizes)
    of_complex(f"IR{_name}", 5, *_sizes, fft_length=_sizes)
    raw_sample(f"R{_name}", array(5, *_sizes), names="input", fft_length=_sizes)
for _name in ["AdjustContrastv2", "AdjustHue", "AdjustSaturation"]:
    _other = {"AdjustContrastv2": "contrast_factor", "AdjustHue": "delta", "AdjustSaturation": "scale"}[_name]
    raw_sample(_name, positive(4, 2, 2, 3), np.float32(0.3), names=f"images {_other}")
for _name in ["RGBToHSV", "HSVToRGB"]:
    raw_sample(_name, positive(4, 3) / 2, names="images")
raw_sample("ResizeBicubic", array(4, 3, 3, 2), names="images", size=[5, 5])


def _to_image(op_type: str) -> None:
    raw = getattr(tf.raw_ops, op_type)
    add_sample(op_type, lambda g: raw(grads=g, original_image=tf.zeros([tf.shape(g)[0], 3, 3, 2])), array(4, 5, 5, 2))


_to_image("ResizeBilinearGrad")
_to_image("ResizeBicubicGrad")
_patches = {"ksizes": [1, 2, 2, 1], "strides": [1] * 4, "rates": [1] * 4, "padding": "SAME"}
raw_sample("ExtractImagePatches", array(4, 3, 3, 2), names="images", **_patches)
raw_sample("SpaceToDepth", array(4, 2, 2, 3), names="input", block_size=2)
raw_sample("DepthToSpace", array(5, 2, 2, 4), names="input", block_size=2)
raw_sample("LRN", array(4, 2, 2, 3), names="input", depth_radius=1)
_cube = {"ksize": [1, 2, 2, 2, 1], "strides": [1] * 5, "padding": "SAME"}
for _name in ["MaxPool3D", "AvgPool3D"]:
    raw_sample(_name, array(4, 3, 3, 3, 2), names="input", **_cube)
raw_sample("LRNGrad", *[array(4, 2, 2, 3)] * 3, names="input_grads input_image output_image", depth_radius=1)
raw_sample("MirrorPadGrad", array(4, 6), names="input", paddings=[[0, 0], [1, 2]], mode="REFLECT")
raw_sample("PadV2", array(4, 3), names="input", paddings=[[0, 0], [1, 2]], constant_values=1.0)
raw_sample("MirrorPad", array(4, 3), names="input", paddings=[[0, 0], [1, 2]], mode="REFLECT")
add_sample(
    "CropAndResize",
    lambda x, boxes, i: tf.raw_ops.CropAndResize(image=x, boxes=boxes, box_ind=i, crop_size=[2, 2]),
    array(6, 4, 4, 2),
    np.tile(np.array([0.0, 0.1, 0.8, 1.0], "float32"), (5, 1)) * positive(5, 1),
    integers(5),
)
raw_sample("GatherNd", array(6, 6), integers(4, 2), names="params indices")
raw_sample("ReverseSequence", array(4, 5, 2), integers(4), names="input seq_lengths", seq_dim=1, batch_dim=0)
raw_sample("InTopKV2", array(4, 6), integers(4), names="predictions targets", k=2)
for _name in ["LowerBound", "UpperBound"]:
    raw_sample(_name, np.sort(array(4, 5)), array(4, 3, seed=1), names="sorted_inputs values")
raw_sample("MatrixDiagPartV3", array(4, 3, 3), names="input", k=0, padding_value=0.0)
raw_sample("MatrixDiagV3", array(4, 3), names="diagonal", k=0, num_rows=-1, num_cols=-1, padding_value=1.0)
raw_sample("MatrixSetDiagV3", array(4, 3, 3), array(4, 3), names="input diagonal", k=0)
