"""Operations on the last axes of each row: matrices, Fourier transforms, images, and rows that other rows pick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.proof.evaluation import Entry, Evaluation, Rule
from harness.proof.rules.images import channels
from harness.proof.terms import Map, Poly

Rows = Callable[[Any, Sequence[Poly], int], list[Map]]


def _last(*own: int | None) -> Rows:
    """Each argument is used as a whole along so many of its last axes; None: it has no rows.

    The axes before these are the same in all arguments, and in the result: where they are broadcast, nothing is known.
    """

    def maps(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
        leads = {arg.shape[: len(arg.shape) - n] for arg, n in zip(args, own, strict=True) if n is not None}
        lead, result = leads.pop(), op.outputs[index].shape
        if leads or result.rank is None or result.rank < len(lead) or 0 in result.as_list():
            return []  # broadcast, or a result that was not asked for
        return [(tuple(k if n is not None else None for n in own), k) for k in range(len(lead))]

    return maps


def _first(*axes: int | None) -> Rows:
    """Row by row along these axes of the arguments, which is the first axis of the result."""
    return lambda op, args, index: [(axes, 0)]


def _gather_nd(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
    return [((None, k), k) for k in range(len(args[1].shape) - 1)]


def _reverse_sequence(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
    batch, steps = op.get_attr("batch_dim"), op.get_attr("seq_dim")
    rest: list[Map] = [((k, None), k) for k in range(len(args[0].shape)) if k not in (batch, steps)]
    return [((batch, 0), batch), *rest]


def _diagonals(*matrix: int) -> Rows:
    """Matrices of diagonals, one or several of each; they are put in the first argument, or in the number around."""

    def maps(op: Any, args: Sequence[Poly], index: int) -> list[Map]:
        rank = op.outputs[index].shape.rank
        rest = (None,) * (len(args) - len(matrix))
        return [((*(k for _ in matrix), *rest), k) for k in range((rank or 2) - 2)]

    return maps


def _pad_around(ev: Evaluation, op: Any, x: Poly, paddings: Poly, *number: Poly) -> Any:
    """Pad with what is at the edge, or with a number."""
    pairs, rest = ev.fixed(paddings, "a padding"), (None,) * (1 + len(number))
    free: list[Map] = [((k, *rest), k) for k, pair in enumerate(pairs) if not any(pair)]
    rule = Rule(lambda op, args, index: free, () if number else (0,), total=True)
    return ev.by_rule(op, [x, paddings, *number], rule)


#: Of one matrix, and of a matrix and what is linear in the second.
_MATRIX = "Cholesky MatrixInverse MatrixDeterminant LogMatrixDeterminant Qr Svd SelfAdjointEigV2 MatrixSquareRoot"
_MATRICES = "MatrixSolve MatrixTriangularSolve CholeskyGrad"
_FOURIER = {"": 1, "2D": 2, "3D": 3}

RULES: dict[str, Entry] = {
    **dict.fromkeys(_MATRIX.split(), Rule(_last(2))),
    **dict.fromkeys(_MATRICES.split(), Rule(_last(2, 2), (1,))),
    "Cross": Rule(_last(1, 1), (0, 1), total=True),
    **{f"{way}FFT{kind}": Rule(_last(many), (0,), total=True) for kind, many in _FOURIER.items() for way in ("", "I")},
    **{
        f"{way}RFFT{kind}": Rule(_last(many, None), (0,), total=True)
        for kind, many in _FOURIER.items()
        for way in ("", "I")
    },
    "AdjustContrastv2": Rule(_last(3, None), total=True),
    "AdjustHue": Rule(_last(1, None), total=True),
    "AdjustSaturation": Rule(_last(1, None), total=True),
    "RGBToHSV": Rule(_last(1), total=True),
    "HSVToRGB": Rule(_last(1), total=True),
    "ResizeBicubic": Rule(_last(3, None), (0,), total=True),
    "ResizeBilinearGrad": Rule(_first(0), (0,), only_shape=(1,), total=True),
    "ResizeBicubicGrad": Rule(_first(0), (0,), only_shape=(1,), total=True),
    "ExtractImagePatches": Rule(_last(3), (0,), total=True),
    "SpaceToDepth": Rule(_last(3), total=True),
    "DepthToSpace": Rule(_last(3), total=True),
    "LRN": Rule(_last(3), total=True),
    "MaxPool3D": Rule(channels(1), total=True),
    "AvgPool3D": Rule(channels(1), (0,), total=True),
    "LRNGrad": Rule(_last(3, 3, 3), (0,), total=True),
    **dict.fromkeys(("MirrorPad", "MirrorPadGrad", "PadV2"), _pad_around),
    "CropAndResize": Rule(_first(None, 0, 0, None), total=True),
    "GatherNd": Rule(_gather_nd, (0,), total=True),
    "ReverseSequence": Rule(_reverse_sequence, (0,), total=True),
    "InTopKV2": Rule(_first(0, 0, None), total=True),
    "LowerBound": Rule(_last(1, 1), total=True),
    "UpperBound": Rule(_last(1, 1), total=True),
    "MatrixDiagV3": Rule(_diagonals(0), total=True),
    "MatrixSetDiagV3": Rule(_diagonals(0, 1), total=True),
    "MatrixDiagPartV3": Rule(_last(2, None, None), total=True),
}
