"""Wrong values: functions of the whole batch that each shard computes for itself (V30 to V34)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault
from harness.faults.samples import integers, on_each, sample, shares
from harness.faults.slips import UNUSED, Towers, slip
from harness.lazy import tf

_NOT_ROW_WISE = "not row-wise"
_NO_MEAN = "averaged over shards, but in the reference it is not a mean over rows"


def _per_shard(fn: Callable[[Any], Any], *found: str) -> Callable[[Devices], Case]:
    """``fn`` of each shard's rows in place of ``fn`` of all rows."""
    return slip(
        lambda t, x: fn(t.model(x)),
        lambda t, x: t.joined(lambda part: fn(t.model(part)), x),
        lambda t, x: fn(t.joined_model(x)),
        *found,
    )


def _averaged(fn: Callable[[Any], Any]) -> Callable[[Devices], Case]:
    return slip(
        lambda t, x: fn(t.model(x)),
        lambda t, x: t.mean(lambda part: fn(t.model(part)), x),
        lambda t, x: fn(t.joined_model(x)),
    )


def _softmax(rows: Any) -> Any:
    return tf.nn.softmax(rows, axis=0)


def _rank(rows: Any) -> Any:
    """Integers."""
    return tf.argsort(rows, axis=0)


def _argmax(rows: Any) -> Any:
    return tf.argmax(rows, axis=0)


def _sort(rows: Any) -> Any:
    return tf.sort(rows, axis=0)


def _contrast(rows: Any) -> Any:
    """Each row is compared with all others of its batch."""
    likeness = tf.matmul(rows, rows, transpose_b=True)
    return tf.reduce_logsumexp(likeness, axis=1) - tf.linalg.diag_part(likeness)


def _running_sum(rows: Any) -> Any:
    return tf.cumsum(rows, axis=0)


def _largest_is_one(rows: Any) -> Any:
    return rows / tf.reduce_max(tf.abs(rows), axis=0)


def _numbered(rows: Any) -> Any:
    return rows + tf.range(tf.shape(rows)[0], dtype=tf.float32)[:, tf.newaxis]


def _unit_length(rows: Any) -> Any:
    return tf.linalg.l2_normalize(rows)


def _clipped(rows: Any) -> Any:
    return tf.clip_by_norm(rows, 1.0)


def _best_rows(rows: Any) -> Any:
    return tf.gather(rows, tf.math.top_k(rows[:, 0], k=2).indices)


def _centred(rows: Any) -> Any:
    return rows - tf.reduce_mean(rows, axis=0)


def _differences(rows: Any) -> Any:
    return rows - tf.roll(rows, 1, axis=0)


def _covariance(rows: Any) -> Any:
    return tf.math.reduce_variance(rows, axis=0)


def _largest(rows: Any) -> Any:
    return tf.reduce_max(rows, axis=0)


def _perplexity(rows: Any) -> Any:
    return tf.exp(tf.reduce_mean(tf.square(rows)))


def _ratio(rows: Any) -> Any:
    return tf.reduce_sum(tf.nn.relu(rows)) / tf.reduce_sum(tf.abs(rows))


def _norm(rows: Any) -> Any:
    return tf.norm(rows)


def _first_empty(t: Towers, x: Any) -> Any:
    """Fewer rows than towers: the mean of no rows is NaN."""
    sizes = shares(x.shape[0], t.count)
    return tf.add_n(on_each(t.names, t.loss, tf.split(x, sizes))) / t.count


def _only_full(t: Towers, x: Any) -> Any:
    rows = x.shape[0]
    return tf.add_n(on_each(t.names[:rows], t.loss, tf.split(x, rows))) / rows


def _counts(_: Towers, x: Any) -> Any:
    return tf.math.bincount(x, minlength=5)


def _counts_of_each(t: Towers, x: Any) -> list[Any]:
    return t.each(lambda part: _counts(t, part), x)


def _last_counts(t: Towers, x: Any) -> Any:
    """Each tower writes its counts over those of the one before it."""
    return _counts_of_each(t, x)[-1]


def _all_counts(t: Towers, x: Any) -> Any:
    return tf.add_n(_counts_of_each(t, x))


def _words(count: int) -> dict[str, Any]:
    return {"x": integers(5, 3 * count).astype("int32")}


def _product(t: Towers, x: Any) -> Any:
    """A dense layer whose features are split: each device has some rows of the weights."""
    return tf.matmul(x, _weights(t)) + t.b


def _weights(t: Towers) -> Any:
    return tf.constant(sample(2 * t.count, 5, seed=6))


def _parts_of_features(t: Towers, x: Any, *, biased: bool) -> Any:
    pairs = zip(tf.split(x, t.count, axis=1), tf.split(_weights(t), t.count), strict=True)
    return on_each(t.names, lambda pair: tf.matmul(*pair) + (t.b if biased else 0.0), list(pairs))


def _bias_in_each(t: Towers, x: Any) -> Any:
    return tf.add_n(_parts_of_features(t, x, biased=True))


def _bias_once(t: Towers, x: Any) -> Any:
    return tf.add_n(_parts_of_features(t, x, biased=False)) + t.b


def _features(count: int) -> dict[str, Any]:
    return {"x": sample(6, 2 * count)}


def _position(t: Towers, x: Any) -> Any:
    return _argmax(t.model(x))


def _position_in_shard(t: Towers, x: Any) -> Any:
    return _best(t, x, 0)


def _position_in_batch(t: Towers, x: Any) -> Any:
    return _best(t, x, x.shape[0] // t.count)


def _best(t: Towers, x: Any, own: int) -> Any:
    """The row with the largest value of each feature; ``own`` rows are before each later shard."""

    def tower(part: Any, before: int) -> Any:
        values = t.model(part)
        return tf.reduce_max(values, axis=0), tf.argmax(values, axis=0) + before

    parts = on_each(t.names, tower, tf.split(x, t.count), [index * own for index in range(t.count)])
    largest, rows = (tf.stack(each) for each in zip(*parts, strict=True))
    return tf.linalg.diag_part(tf.gather(rows, tf.argmax(largest, axis=0)))


FAULTS = (
    Fault(
        "V18-batch-softmax",
        "softmax over each shard instead of the batch",
        "public code",
        _per_shard(_softmax),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-rank",
        "rank (an integer) within each shard instead of the batch",
        "public code",
        _per_shard(_rank),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-argmax",
        "argmax over each shard instead of the batch",
        "public code",
        _per_shard(_argmax, "shape"),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-sort",
        "rows sorted within each shard instead of the batch",
        "public code",
        _per_shard(_sort),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-negatives",
        "in-batch negatives from the shard alone",
        "public code",
        _per_shard(_contrast),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-running-sum",
        "a running sum over the rows that starts again in each shard",
        "made up for this list",
        _per_shard(_running_sum),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-scaled-by-largest",
        "scaled by the largest value in the shard instead of the batch",
        "public code",
        _per_shard(_largest_is_one),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-row-numbers",
        "rows numbered within each shard instead of the batch",
        "public code",
        _per_shard(_numbered),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-unit-length",
        "each shard scaled to length 1, instead of the batch",
        "public code",
        _per_shard(_unit_length),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-clipped",
        "the norm of each shard clipped, instead of that of the batch",
        "public code",
        _per_shard(_clipped),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-best-rows",
        "the rows with the largest values in each shard instead of the batch",
        "public code",
        _per_shard(_best_rows, "shape"),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-centred",
        "the mean of the shard subtracted instead of that of the batch",
        "public code",
        _per_shard(_centred),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V18-differences",
        "differences of neighbouring rows taken within each shard",
        "made up for this list",
        _per_shard(_differences),
        _NOT_ROW_WISE,
        rule="C110",
    ),
    Fault(
        "V17-mean-of-variances",
        "variances averaged over shards",
        "public code",
        _averaged(_covariance),
        _NO_MEAN,
        rule="C110",
    ),
    Fault(
        "V17-mean-of-maxima", "maxima averaged over shards", "public code", _averaged(_largest), _NO_MEAN, rule="C110"
    ),
    Fault(
        "V17-mean-of-perplexities",
        "perplexities averaged over shards",
        "transformers PR 6998",
        _averaged(_perplexity),
        _NO_MEAN,
        rule="C110",
    ),
    Fault(
        "V17-mean-of-ratios",
        "ratios averaged over shards",
        "transformers PR 6998",
        _averaged(_ratio),
        _NO_MEAN,
        rule="C110",
    ),
    Fault("V17-mean-of-norms", "norms averaged over shards", "public code", _averaged(_norm), _NO_MEAN, rule="C110"),
    Fault(
        "V30-empty-shard",
        "the mean of an empty shard",
        "public code",
        slip(Towers.loss, _first_empty, _only_full, rows=lambda count: count - 1),
        "shard .*(empty|no rows|without rows)",
        rule="C102",
    ),
    Fault(
        "V31-last-counts",
        "counts of the last shard alone",
        "public code",
        slip(_counts, _last_counts, _all_counts, inputs=_words, also=UNUSED),
        r"includes only shard \d+ .* lost",
        rule="C110",
    ),
    Fault(
        "V32-bias-in-each-part",
        "features split, and the bias added to each part",
        "made up for this list",
        slip(_product, _bias_in_each, _bias_once, inputs=_features),
        "counted <n> times",
        rule="C407",
    ),
    Fault(
        "V33-row-number-in-shard",
        "argmax gives the number of a row within its shard instead of the batch",
        "public code",
        slip(_position, _position_in_shard, _position_in_batch),
        "not row-wise|within (its|the) shard",
        rule="C106",
    ),
)
