"""The arithmetic of ops, by the shapes of their tensors."""

from __future__ import annotations

import pytest

from harness.evidence.work import estimate

X, W, Y = (2, 8, 8, 3), (3, 3, 3, 5), (2, 6, 6, 5)


@pytest.mark.parametrize(
    ("kind", "inputs", "output"),
    [
        ("Conv2D", [X, W], Y),
        ("_FusedConv2D", [X, W, (5,)], Y),
        ("Conv2DBackpropInput", [(4,), W, Y], X),
        ("Conv2DBackpropFilter", [X, (4,), Y], W),
    ],
)
def test_the_gradients_of_a_convolution_compute_as_much_as_itself(
    kind: str, inputs: list[tuple[int, ...]], output: tuple[int, ...]
) -> None:
    assert estimate(kind, inputs, [output]) == 2 * (2 * 6 * 6 * 5) * (3 * 3 * 3)


def test_a_depthwise_convolution_sums_over_its_window_alone() -> None:
    window, made = (3, 3, 3, 2), (2, 6, 6, 6)
    wanted = 2 * (2 * 6 * 6 * 6) * (3 * 3)
    assert estimate("DepthwiseConv2dNative", [X, window], [made]) == wanted
    assert estimate("DepthwiseConv2dNativeBackpropFilter", [X, (4,), made], [window]) == wanted


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "products"),
    [
        ("MatMul", [(4, 5), (5, 6)], (4, 6), 4 * 5 * 6),
        ("BatchMatMulV2", [(16, 4, 5), (16, 5, 6)], (16, 4, 6), 16 * 4 * 5 * 6),
        ("Einsum", [(2, 4, 5), (5, 6)], (2, 4, 6), 2 * 4 * 5 * 6),
    ],
)
def test_a_product_of_matrices_has_so_many_products(
    kind: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], products: int
) -> None:
    assert estimate(kind, inputs, [output]) == pytest.approx(2 * products)


def test_what_has_rows_of_unknown_number_is_unknown() -> None:
    assert estimate("MatMul", [(None, 5), (5, 6)], [(None, 6)]) == 0
    assert estimate("Conv2D", [(None, 8, 8, 3), W], [(None, 6, 6, 5)]) == 0
    assert estimate("Conv2DBackpropFilter", [(None, 8, 8, 3), (4,), (None, 6, 6, 5)], [W]) == 0
