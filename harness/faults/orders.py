"""Wrong values: rows, shards and outputs in the wrong place or number (V22 to V29), and lower precision (V26)."""

from __future__ import annotations

from typing import Any

from harness.faults.fault import Fault
from harness.faults.samples import on_each, sample, uneven
from harness.faults.slips import UNUSED, Towers, slip
from harness.lazy import tf


def _sum(t: Towers, x: Any) -> Any:
    return tf.reduce_sum(t.model(x), axis=0)


def _summed(t: Towers, x: Any) -> Any:
    return t.sum(lambda part: _sum(t, part), x)


def _other_order(t: Towers, x: Any) -> Any:
    return tf.concat(t.each(t.model, x)[::-1], axis=0)


def _shifted(t: Towers, x: Any) -> Any:
    return tf.roll(t.joined_model(x), -1, axis=0)


def _reversed(t: Towers, x: Any) -> Any:
    return tf.reverse(t.joined_model(x), [0])


def _strided(t: Towers, x: Any) -> Any:
    """Rows are dealt out like cards, and the hands laid one after the other."""
    return tf.concat(on_each(t.names, t.model, [x[index :: t.count] for index in range(t.count)]), axis=0)


def _dealt(t: Towers, x: Any) -> Any:
    parts = on_each(t.names, t.model, [x[index :: t.count] for index in range(t.count)])
    return tf.reshape(tf.stack(parts, axis=1), [-1, 5])


def _neighbours(t: Towers, x: Any) -> Any:
    parts = tf.split(x, t.count)
    return tf.concat(on_each(t.names, t.model, [*parts[:-1], parts[-2]]), axis=0)


def _overlapping(t: Towers, x: Any) -> Any:
    own = x.shape[0] // t.count
    parts = [x[max(index * own - 1, 0) : (index + 1) * own] for index in range(t.count)]
    return tf.concat(on_each(t.names, t.model, parts), axis=0)


def _padded(t: Towers, x: Any) -> Any:
    return tf.pad(x, [[0, -x.shape[0] % t.count], [0, 0]])


def _padding_kept(t: Towers, x: Any) -> Any:
    return t.joined(t.model, _padded(t, x))


def _padding_cut(t: Towers, x: Any) -> Any:
    return _padding_kept(t, x)[: x.shape[0]]


def _padding_counted(t: Towers, x: Any) -> Any:
    return t.mean_loss(_padded(t, x))


def _padding_left_out(t: Towers, x: Any) -> Any:
    return tf.reduce_mean(tf.square(_padding_cut(t, x)))


def _zeros(t: Towers, x: Any) -> Any:
    *parts, last = t.each(t.model, x)
    return tf.concat([*parts, tf.zeros_like(last)], axis=0)


def _one_scaled(t: Towers, x: Any) -> Any:
    *parts, last = t.each(t.model, x)
    return tf.concat([*parts, 2.0 * last], axis=0)


def _two_outputs(t: Towers, x: Any) -> Any:
    rows = t.model(x)
    return {"low": tf.reduce_min(rows, axis=0), "high": tf.reduce_max(rows, axis=0)}


def _both(t: Towers, x: Any, low: str, high: str) -> Any:
    parts = t.each(lambda part: _two_outputs(t, part), x)
    return {
        low: tf.reduce_min(tf.stack([part["low"] for part in parts]), axis=0),
        high: tf.reduce_max(tf.stack([part["high"] for part in parts]), axis=0),
    }


def _swapped(t: Towers, x: Any) -> Any:
    return _both(t, x, "high", "low")


def _in_order(t: Towers, x: Any) -> Any:
    return _both(t, x, "low", "high")


def _one_missing(t: Towers, x: Any) -> Any:
    return {"low": _in_order(t, x)["low"]}


def _half(t: Towers, x: Any) -> Any:
    def tower(part: Any) -> Any:
        product = tf.matmul(tf.cast(part, tf.float16), tf.cast(t.w, tf.float16))
        return tf.tanh(tf.cast(product, tf.float32) + t.b)

    return t.joined(tower, x)


def _compressed(t: Towers, x: Any) -> Any:
    return t.sum(lambda part: tf.cast(tf.cast(_sum(t, part), tf.bfloat16), tf.float32), x)


def _wider(t: Towers, x: Any) -> Any:
    return tf.cast(t.joined_model(x), tf.float64)


def _last_lost(t: Towers, x: Any) -> Any:
    return tf.add_n(t.each(lambda part: _sum(t, part), x)[:-1])


def _first_alone(t: Towers, x: Any) -> Any:
    return t.each(t.loss, x)[0]


def _averaged(t: Towers, x: Any) -> Any:
    return t.mean(lambda part: _sum(t, part), x)


def _added(t: Towers, x: Any) -> Any:
    return t.sum(t.loss, x)


def _labels(t: Towers, x: Any, y: Any) -> Any:
    return tf.reduce_sum(tf.square(t.model(x) - y), axis=1)


def _labels_right(t: Towers, x: Any, y: Any) -> Any:
    return t.joined(lambda part, own: _labels(t, part, own), x, y)


def _labels_of_another(t: Towers, x: Any, y: Any) -> Any:
    return _labels_right(t, x, tf.roll(y, 2, axis=0))


def _xy(count: int) -> dict[str, Any]:
    return {"x": sample(2 * count, 3), "y": sample(2 * count, 5, seed=4)}


FAULTS = (
    Fault(
        "V22-shards-reversed",
        "results joined in the reverse order of the devices",
        "public code",
        slip(Towers.model, _other_order, Towers.joined_model),
        "shards are joined in a different order",
        rule="C101",
    ),
    Fault(
        "V22-shifted",
        "rows shifted by one",
        "public code",
        slip(Towers.model, _shifted, Towers.joined_model),
        "rows are shifted by 1",
        rule="C101",
    ),
    Fault(
        "V22-rows-reversed",
        "rows in reverse order",
        "public code",
        slip(Towers.model, _reversed, Towers.joined_model),
        "in reverse order",
        rule="C101",
    ),
    Fault(
        "V22-strided",
        "rows dealt out in turn, but joined shard after shard",
        "public code",
        slip(Towers.model, _strided, _dealt),
        "joined in a different order",
        rule="C101",
    ),
    Fault(
        "V22-a-neighbours-rows",
        "a tower works on the rows of its neighbour",
        "public code",
        slip(Towers.model, _neighbours, Towers.joined_model),
        r"Rows \d+ .* take the place of rows \d+",
        rule="C101",
    ),
    Fault(
        "V22-labels-of-another",
        "rows paired with the labels of another shard",
        "public code",
        slip(_labels, _labels_of_another, _labels_right, inputs=_xy),
        "Y .*(shifted|of another|different rows)",
        rule="C102",
    ),
    Fault(
        "V23-overlap",
        "shards that overlap by a row",
        "public code",
        slip(Towers.model, _overlapping, Towers.joined_model, "shape"),
        r"Rows? \d+.*(twice|doubled|more than once)",
        rule="C101",
    ),
    Fault(
        "V23-padding-kept",
        "rows of padding are returned",
        "public code",
        slip(Towers.model, _padding_kept, _padding_cut, "shape", rows=uneven),
        "padd|rows? (more|too many|were added)",
        rule="C102",
    ),
    Fault(
        "V23-padding-counted",
        "rows of padding are counted in a mean",
        "public code",
        slip(Towers.loss, _padding_counted, _padding_left_out, rows=uneven),
        "padd|rows? (more|too many|were added)",
        rule="C102",
    ),
    Fault(
        "V24-zeros",
        "a shard's result is zero",
        "public code",
        slip(Towers.model, _zeros, Towers.joined_model, also=UNUSED),
        r"shard \d+.*zero",
        rule="C109",
    ),
    Fault(
        "V24-one-scaled",
        "a shard's result counts twice",
        "public code",
        slip(Towers.model, _one_scaled, Towers.joined_model),
        r"shard \d+.* 2 times",
        rule="C109",
    ),
    Fault(
        "V25-outputs-swapped",
        "two outputs swapped",
        "public code",
        slip(_two_outputs, _swapped, _in_order),
        r"output\['high'\] and output\['low'\] are in the wrong order",
        rule="C404",
    ),
    Fault(
        "V25-output-missing",
        "an output is missing",
        "public code",
        slip(_two_outputs, _one_missing, _in_order, "structure"),
        "different structure",
    ),
    Fault(
        "V26-half-precision",
        "all towers in half precision",
        "made up for this list",
        slip(Towers.model, _half, Towers.joined_model),
        "computes in float16 instead of float32",
        rule="C408",
    ),
    Fault(
        "V26-compressed-sum",
        "partial sums sent as bfloat16",
        "made up for this list",
        slip(_sum, _compressed, _summed),
        "bfloat16",
        rule="C408",
    ),
    Fault(
        "V27-wider-dtype",
        "results in float64",
        "public code",
        slip(Towers.model, _wider, Towers.joined_model, "dtype"),
        "float64",
        rule="C401",
    ),
    Fault(
        "V28-mean-of-sums",
        "sums averaged over the shards",
        "public code",
        slip(_sum, _averaged, _summed),
        "<n> times too small",
        rule="C110",
    ),
    Fault(
        "V28-sum-of-means",
        "means summed over the shards",
        "public code",
        slip(Towers.loss, _added, Towers.mean_loss),
        "<n> times too large",
        rule="C110",
    ),
    Fault(
        "V29-last-lost",
        "the last shard is left out of a sum",
        "public code",
        slip(_sum, _last_lost, _summed, also=UNUSED),
        r"part of shard \d+ .* is missing",
        rule="C110",
    ),
    Fault(
        "V29-first-alone",
        "the loss of the first tower alone",
        "public code",
        slip(Towers.loss, _first_alone, Towers.mean_loss, also=UNUSED),
        "includes only shard 0 .* lost",
        rule="C110",
    ),
)
