"""Programs with TensorFlow Probability, GPflow and Sonnet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from model_cases import Case, Model, mean_of_means, split, step, swapped_parts, towers, towers_that_drop_rows

from harness import Verdict
from harness.faults.samples import integers, sample

_ROWS = 5


def density(make: Callable[[Any, Any], Any], *, value: Callable[[], Any] | None = None) -> Callable[[], Model]:
    """The log density of a distribution with one parameter for each feature, of which the gradients are compared."""

    def build() -> Model:
        import tensorflow as tf
        import tensorflow_probability as tfp

        w = tf.Variable(np.linspace(0.5, 1.5, 3, dtype="float32"), name="w")
        x = sample(_ROWS, 3) if value is None else value()
        return lambda x: make(tfp.distributions, w).log_prob(x), {"x": x}, [w]

    return build


def _positive() -> Any:
    return np.abs(sample(_ROWS, 3)) + np.float32(0.1)


def _counts() -> Any:
    return integers(5, _ROWS, 3).astype("float32")


def _unit() -> Any:
    return (1.0 / (1.0 + np.exp(-sample(_ROWS, 3)))).astype("float32")


def _shares() -> Any:
    whole = _positive()
    return whole / whole.sum(1, keepdims=True)


DENSITIES: list[tuple[str, Callable[[], Model]]] = [
    ("Normal", density(lambda d, w: d.Normal(w, 1.0))),
    ("StudentT", density(lambda d, w: d.StudentT(3.0, w, 1.0))),
    ("Laplace", density(lambda d, w: d.Laplace(w, 2.0))),
    ("Logistic", density(lambda d, w: d.Logistic(w, 2.0))),
    ("Gumbel", density(lambda d, w: d.Gumbel(w, 2.0))),
    ("Cauchy", density(lambda d, w: d.Cauchy(w, 2.0))),
    ("SinhArcsinh", density(lambda d, w: d.SinhArcsinh(w, 1.0, 0.2, 1.1))),
    ("VonMises", density(lambda d, w: d.VonMises(0.1, w))),
    ("Gamma", density(lambda d, w: d.Gamma(w, 2.0), value=_positive)),
    ("InverseGamma", density(lambda d, w: d.InverseGamma(w, 2.0), value=_positive)),
    ("Weibull", density(lambda d, w: d.Weibull(w, 2.0), value=_positive)),
    ("Pareto", density(lambda d, w: d.Pareto(w, 0.05), value=_positive)),
    # The gradient has a step where w is 1, as xlogy(w - 1, x) has.
    ("Beta", density(lambda d, w: d.Beta(w, 2.0), value=_unit)),
    ("Kumaraswamy", density(lambda d, w: d.Kumaraswamy(w, 2.0), value=_unit)),
    ("Poisson", density(lambda d, w: d.Poisson(w), value=_counts)),
    ("NegativeBinomial", density(lambda d, w: d.NegativeBinomial(w, probs=0.3), value=_counts)),
    ("Binomial", density(lambda d, w: d.Binomial(6.0, logits=w), value=_counts)),
    ("Dirichlet", density(lambda d, w: d.Dirichlet(w), value=_shares)),
    ("MultivariateNormalDiag", density(lambda d, w: d.MultivariateNormalDiag(w, [1.0, 2.0, 3.0]))),
    (
        "MultivariateNormalTriL",
        density(lambda d, w: d.MultivariateNormalTriL(w, np.tril(np.ones((3, 3), "float32")))),
    ),
    ("Independent", density(lambda d, w: d.Independent(d.Normal(w, 1.0), 1))),
    (
        "MixtureSameFamily",
        density(
            lambda d, w: d.MixtureSameFamily(d.Categorical(logits=[0.1, 0.2, 0.3]), d.Normal(w, 1.0)),
            value=lambda: sample(_ROWS),
        ),
    ),
    (
        "HiddenMarkovModel",
        density(
            lambda d, w: d.HiddenMarkovModel(
                d.Categorical(logits=[0.0, 0.1, 0.2]),
                d.Categorical(logits=np.eye(3, dtype="float32")),
                d.Normal(w, 1.0),
                4,
            ),
            value=lambda: sample(_ROWS, 4),
        ),
    ),
]


def bijector(make: Callable[[Any], Any], *shape: int) -> Callable[[], Model]:
    """A bijector, with the logarithm of its Jacobian."""

    def build() -> Model:
        import tensorflow as tf
        import tensorflow_probability as tfp

        tf.random.set_seed(4)
        made = make(tfp.bijectors)

        def fn(x: Any) -> Any:
            return made.forward(x), made.forward_log_det_jacobian(x, 1)

        x = sample(*(shape or (_ROWS, 4)))
        with tf.device("CPU:0"):
            fn(x)
        return fn, {"x": x}, made.trainable_variables

    return build


def gpflow_model(make: Callable[[Any, Any, Any], Any], what: str = "predict_f") -> Callable[[], Model]:
    """The mean and the variance that a model of GPflow predicts for new points, point by point."""

    def build() -> Model:
        import gpflow

        known, values = sample(7, 2).astype("float64"), sample(7, 1, seed=1).astype("float64")
        made = make(gpflow, known, values)
        return (
            lambda x: getattr(made, what)(x),
            {"x": sample(_ROWS, 2, seed=2).astype("float64")},
            made.trainable_variables,
        )

    return build


def sonnet_module(make: Callable[[Any], Any], *shape: int, **call: Any) -> Callable[[], Model]:
    """A module of Sonnet."""

    def build() -> Model:
        import sonnet
        import tensorflow as tf

        tf.random.set_seed(5)
        made = make(sonnet)
        x = sample(*shape)

        def fn(x: Any) -> Any:
            return made(x, **call)

        with tf.device("CPU:0"):
            fn(tf.constant(x))
        return fn, {"x": x}, made.trainable_variables

    return build


def _drawn() -> Model:
    import tensorflow as tf
    import tensorflow_probability as tfp

    w = tf.Variable([0.5, 1.0, 1.5])
    return lambda x: x + tfp.distributions.Normal(w, 1.0).sample(tf.shape(x)[0]), {"x": sample(_ROWS, 3)}, [w]


CASES = [
    *(Case(f"TFP {name}", split(make)) for name, make in DENSITIES),
    Case("TFP Normal towers", step(DENSITIES[0][1])),
    Case("TFP Shift and Scale", split(bijector(lambda b: b.Chain([b.Shift(1.0), b.Scale(2.0), b.Tanh()])))),
    Case("TFP SoftmaxCentered", split(bijector(lambda b: b.SoftmaxCentered()))),
    Case(
        "TFP RealNVP", split(bijector(lambda b: b.RealNVP(2, shift_and_log_scale_fn=b.real_nvp_default_template([8]))))
    ),
    Case(
        "TFP MaskedAutoregressiveFlow",
        split(
            bijector(
                lambda b: b.MaskedAutoregressiveFlow(b.AutoregressiveNetwork(2, event_shape=[4], hidden_units=[8]))
            )
        ),
    ),
    Case("TFP sample", split(_drawn, variables=0), Verdict.UNKNOWN, ("random numbers",)),
    Case("TFP Gamma rows dropped", towers_that_drop_rows(DENSITIES[8][1]), Verdict.FAIL, ("Row 4 of 5 was dropped",)),
    Case("TFP Normal mean of means", mean_of_means(DENSITIES[0][1]), Verdict.FAIL, ("mean of means",)),
    Case("GPflow GPR", split(gpflow_model(lambda g, x, y: g.models.GPR((x, y), g.kernels.SquaredExponential())))),
    Case(
        "GPflow VGP",
        split(gpflow_model(lambda g, x, y: g.models.VGP((x, y), g.kernels.Matern32(), g.likelihoods.StudentT()))),
    ),
    Case("GPflow SGPR", split(gpflow_model(lambda g, x, y: g.models.SGPR((x, y), g.kernels.Matern52(), x[:3])))),
    Case(
        "GPflow SVGP",
        split(
            gpflow_model(lambda g, x, y: g.models.SVGP(g.kernels.RationalQuadratic(), g.likelihoods.Gaussian(), x[:3]))
        ),
    ),
    Case(
        "GPflow predict_y",
        split(gpflow_model(lambda g, x, y: g.models.GPR((x, y), g.kernels.Linear() + g.kernels.Cosine()), "predict_y")),
    ),
    Case(
        "GPflow towers",
        towers(gpflow_model(lambda g, x, y: g.models.GPR((x, y), g.kernels.Periodic(g.kernels.Matern12())))),
    ),
    Case(
        "GPflow samples of one batch",
        split(
            gpflow_model(lambda g, x, y: g.models.GPR((x, y), g.kernels.SquaredExponential()), "predict_f_samples"),
            variables=0,
        ),
        Verdict.UNKNOWN,
        ("random numbers",),
    ),
    Case("Sonnet MLP", split(sonnet_module(lambda s: s.nets.MLP([8, 3]), _ROWS, 6))),
    Case("Sonnet Conv2D", split(sonnet_module(lambda s: s.Conv2D(4, 3), _ROWS, 6, 6, 2))),
    Case(
        "Sonnet ResNet",
        split(sonnet_module(lambda s: s.nets.ResNet([1, 1, 1, 1], 4), 4, 16, 16, 3, is_training=False)),
        modes=("eager",),
    ),
    Case("Sonnet LayerNorm", split(sonnet_module(lambda s: s.LayerNorm(-1, True, True), _ROWS, 6))),
    Case(
        "Sonnet VectorQuantizer",
        split(sonnet_module(lambda s: s.nets.VectorQuantizer(3, 4, 0.25), _ROWS, 3, is_training=False), variables=0),
        Verdict.FAIL,
        ("scalar",),
    ),
    Case(
        "Sonnet BatchNorm in training",
        split(sonnet_module(lambda s: s.BatchNorm(True, True), 6, 6, is_training=True), variables=0),
        Verdict.FAIL,
        ("not row-wise",),
    ),
    Case(
        "Sonnet MLP parts swapped",
        swapped_parts(sonnet_module(lambda s: s.nets.MLP([8, 3]), 4, 6)),
        Verdict.FAIL,
        ("order",),
    ),
]
