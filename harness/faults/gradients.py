"""Wrong gradients: averaged, added up or put in place wrongly, stopped, of some towers only (G03, G05 to G14)."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.samples import integers, sample, uneven
from harness.faults.slips import Towers, slip, trained
from harness.lazy import tf


def _joined(t: Towers, x: Any) -> Any:
    from harness.parallel.data import make_parallel

    return make_parallel(t.model, t.devices)(x=x)


def _stopped(t: Towers, x: Any) -> Any:
    """The weights are constants to the tape."""
    from harness.parallel.data import make_parallel

    def tower(x: Any) -> Any:
        return tf.tanh(tf.matmul(x, tf.stop_gradient(t.w)) + t.b)

    return make_parallel(tower, t.devices)(x=x)


def _upstream_ignored(t: Towers, x: Any) -> Any:
    """A custom gradient that takes the gradient of what follows for 1."""
    from harness.parallel.data import make_parallel

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def activation(x: Any) -> Any:
        y = tf.tanh(x)
        return y, lambda upstream: (1.0 - tf.square(y)) * tf.ones_like(upstream)

    return make_parallel(lambda x: activation(tf.matmul(x, t.w) + t.b), t.devices)(x=x)


def _stopped_in_one(t: Towers, x: Any) -> Any:
    """Towers are numbered, and the last one is frozen."""
    losses, gradients = [], []
    for number, (name, part) in enumerate(zip(t.names, tf.split(x, t.count), strict=True)):
        with tf.device(name):
            loss, own = t.step(part)
            losses.append(loss)
            gradients.append([tf.zeros_like(each) if number == t.count - 1 else each for each in own])
    return tf.add_n(losses) / t.count, [tf.add_n(parts) / t.count for parts in zip(*gradients, strict=True)]


def _first_alone(t: Towers, x: Any) -> Any:
    steps = t.each(t.step, x)
    return tf.add_n([loss for loss, _ in steps]) / t.count, steps[0][1]


def _averaged_twice(t: Towers, x: Any) -> Any:
    loss, gradients = t.mean_step(x)
    return loss, [each / t.count for each in gradients]


def _clip(step: tuple[Any, Any]) -> tuple[Any, Any]:
    return step[0], [tf.clip_by_norm(each, 0.05) for each in step[1]]


def _clipped_step(t: Towers, x: Any) -> Any:
    return _clip(t.step(x))


def _clipped_in_each(t: Towers, x: Any) -> Any:
    return t.mean(lambda part: _clip(t.step(part)), x)


def _clipped_once(t: Towers, x: Any) -> Any:
    return _clip(t.mean_step(x))


def _named_step(t: Towers, x: Any) -> Any:
    """Gradients of two biases by name, which have the same shape."""
    with tf.GradientTape(persistent=True) as tape:
        scale = tf.square(t.b)
        tape.watch(scale)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, t.w) * scale + t.b))
    bias, scaled = tape.gradient(loss, [t.b, scale])
    return {"bias": bias, "scale": scaled}


def _named(t: Towers, x: Any) -> Any:
    return t.mean(lambda part: _named_step(t, part), x)


def _names_swapped(t: Towers, x: Any) -> Any:
    found = _named(t, x)
    return {"bias": found["scale"], "scale": found["bias"]}


def _ascent(t: Towers, x: Any) -> Any:
    """The gradient of the negative loss: a tower maximises."""
    loss, gradients = t.mean(lambda part: t.step(part, lambda rows: -t.loss(rows)), x)
    return -loss, gradients


def _half(t: Towers, x: Any) -> Any:
    def tower(part: Any) -> Any:
        loss, gradients = t.step(part)
        return loss, [tf.cast(tf.cast(each, tf.float16), tf.float32) for each in gradients]

    return t.mean(tower, x)


def _penalised(t: Towers, x: Any, share: float = 1.0) -> Any:
    return t.step(x, lambda rows: t.loss(rows) + share * 0.1 * tf.nn.l2_loss(t.w))


def _penalty_in_each(t: Towers, x: Any) -> Any:
    return t.mean(lambda part: _penalised(t, part), x)


def _penalty_averaged_twice(t: Towers, x: Any) -> Any:
    return t.mean(lambda part: _penalised(t, part, 1 / t.count), x)


def _bias_left_out(t: Towers, x: Any) -> Any:
    """The bias is missing in a list of variables, and zeros take the place of its gradient."""
    loss, (weights, bias) = t.mean_step(x)
    return loss, [weights, tf.zeros_like(bias)]


def _accumulated(t: Towers, x: Any, share: float) -> Any:
    """Two micro-batches for each tower, whose gradients are added up."""

    def tower(part: Any) -> Any:
        steps = [t.step(half) for half in tf.split(part, 2)]
        return tf.nest.map_structure(lambda *parts: tf.add_n(parts) * share, *steps)

    return t.mean(tower, x)


def _micro_batches_added(t: Towers, x: Any) -> Any:
    return _accumulated(t, x, 1.0)


def _micro_batches_averaged(t: Towers, x: Any) -> Any:
    return _accumulated(t, x, 0.5)


def _values(x: Any) -> Any:
    """The gradients of the sum of squares of looked-up rows of a table of 9 words."""
    return 2.0 * tf.gather(tf.constant(sample(9, 4)), x)


def _added_up(x: Any, values: Any) -> Any:
    """The gradient of the table."""
    return tf.scatter_nd(x[:, tf.newaxis], values, [9, 4])


def _table(_: Towers, x: Any) -> Any:
    return _added_up(x, _values(x))


def _table_of_all(t: Towers, x: Any) -> Any:
    return _added_up(x, t.joined(_values, x))


def _repeated_words_overwritten(t: Towers, x: Any) -> Any:
    return tf.tensor_scatter_nd_update(tf.zeros([9, 4]), x[:, tf.newaxis], t.joined(_values, x))


def _words(count: int) -> dict[str, Any]:
    return {"x": integers(9, 4 * count, seed=5)}


FAULTS = (
    Fault(
        "G03-indexed-slices-averaged-by-value",
        "the values of the shards' IndexedSlices are averaged, and their indices ignored",
        "tensorflow 5252, horovod PR 2279",
        slip(
            lambda t, x: _table(t, x) / t.count,
            lambda t, x: _added_up(t.split(x)[0], t.mean(_values, x)),
            lambda t, x: _table_of_all(t, x) / t.count,
            inputs=lambda count: {"x": integers(9, 2 * count, seed=5)},
        ),
        "keep the indices of one shard",
        rule="C113",
    ),
    Fault(
        "G05-stopped",
        "tf.stop_gradient on the weights in every tower",
        "public code",
        slip(Towers.model, _stopped, _joined, "missing-gradient", variables=trained, gradients=True),
        "variable weights is stopped by tf.stop_gradient",
        rule="C301",
    ),
    Fault(
        "G05-upstream-ignored",
        "a custom gradient ignores its upstream gradient",
        "made up for this list",
        slip(Towers.model, _upstream_ignored, _joined, "gradient", variables=trained, gradients=True),
        "custom gradient",
        rule="C301",
    ),
    Fault(
        "G06-frozen-tower",
        "the last tower has no gradient",
        "public code",
        slip(Towers.step, _stopped_in_one, Towers.mean_step),
        r"part of shard \d+ .* is missing",
        rule="C110",
    ),
    Fault(
        "G06-first-alone",
        "the gradients of the first tower alone",
        "public code",
        slip(Towers.step, _first_alone, Towers.mean_step),
        "includes only shard 0 .* lost",
        rule="C110",
    ),
    Fault(
        "G07-averaged-twice",
        "gradients averaged twice",
        "horovod 843",
        slip(Towers.step, _averaged_twice, Towers.mean_step),
        "<n> times too small",
        rule="C403",
    ),
    Fault(
        "G07-uneven",
        "gradients of uneven shards averaged as if the shards were equal",
        "tensorflow 48875",
        slip(Towers.step, Towers.mean_step, lambda t, x: t.weighted(t.step, x), rows=uneven),
        "mean of means of uneven shards",
        rule="C110",
    ),
    Fault(
        "G08-clipped-in-each",
        "gradients clipped before they are averaged",
        "tensorflow 33929",
        slip(_clipped_step, _clipped_in_each, _clipped_once),
        "averaged over shards, but in the reference it is not a mean over rows|clip",
        rule="C110",
    ),
    Fault(
        "G09-names-swapped",
        "gradients of two variables under each other's names",
        "public code",
        slip(_named_step, _names_swapped, _named),
        r"output\['bias'\] and output\['scale'\] are in the wrong order",
        rule="C404",
    ),
    Fault(
        "G10-ascent",
        "gradients of the negative loss",
        "made up for this list",
        slip(Towers.step, _ascent, Towers.mean_step),
        "-1 times",
        rule="C403",
    ),
    Fault(
        "G10-bias-left-out",
        "zeros instead of the gradient of the bias",
        "public code",
        slip(Towers.step, _bias_left_out, Towers.mean_step),
        "zero",
        rule="C403",
    ),
    Fault(
        "G11-half",
        "gradients exchanged in half precision",
        "made up for this list",
        slip(Towers.step, _half, Towers.mean_step),
        "float16",
        rule="C408",
    ),
    Fault(
        "G12-penalty-forgotten",
        "a regulariser missing in every tower",
        "public code",
        slip(_penalised, Towers.mean_step, _penalty_in_each),
        "regulariser.*(0 times|left out|missing)|off by",
        rule="C402",
    ),
    Fault(
        "G12-penalty-averaged-twice",
        "a regulariser divided by the number of towers",
        "public code",
        slip(_penalised, _penalty_averaged_twice, _penalty_in_each),
        "regulariser.*(1/<n>|0.25)",
        rule="C402",
    ),
    Fault(
        "G13-micro-batches-added",
        "gradients of micro-batches added up instead of averaged",
        "public code",
        slip(Towers.step, _micro_batches_added, _micro_batches_averaged, rows=lambda count: 4 * count),
        "2 times too large|2 times",
        rule="C403",
    ),
    Fault(
        "G14-repeated-words",
        "gradients of repeated words overwrite one another",
        "tensorflow 5252",
        slip(_table, _repeated_words_overwritten, _table_of_all, inputs=_words),
        "IndexedSlices|repeated|overwr",
        rule="C900",
    ),
)
