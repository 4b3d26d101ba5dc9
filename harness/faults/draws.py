"""Wrong randomness: numbers drawn by each shard, of another seed, without a seed (R01 to R06)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.faults.fault import Case, Fault
from harness.faults.samples import on_each
from harness.faults.slips import Towers, slip
from harness.lazy import tf

_SAME = "every shard draws the same random numbers"
_OWN = "each shard draws its own"


def _noise(x: Any, seed: int = 2) -> Any:
    return tf.random.stateless_normal(tf.shape(x), seed=[1, seed])


def _added(t: Towers, x: Any, drawn: Any) -> Any:
    return t.model(x + drawn)


def _multiplied(_: Towers, x: Any, drawn: Any) -> Any:
    return x * drawn


def _drawn(
    draw: Callable[[Any], Any],
    *found: str,
    use: Callable[[Towers, Any, Any], Any] = _added,
    in_shard: Callable[[Any], Any] | None = None,
) -> Callable[[Devices], Case]:
    """Numbers that ``in_shard``, by default ``draw``, draws for a shard; the twin splits those of the batch."""
    return slip(
        lambda t, x: use(t, x, draw(x)),
        lambda t, x: t.joined(lambda part: use(t, part, (in_shard or draw)(part)), x),
        lambda t, x: t.joined(partial(use, t), x, draw(x)),
        *found,
    )


def _half_dropped(x: Any) -> Any:
    return 2.0 * tf.cast(tf.random.stateless_uniform(tf.shape(x), seed=[1, 2]) < 0.5, x.dtype)


def _unseeded_dropout(x: Any) -> Any:
    return tf.nn.dropout(tf.ones_like(x), 0.5)


def _noisy(t: Towers, x: Any) -> Any:
    return _added(t, x, _noise(x))


def _seeded(t: Towers, x: Any, seed: int = 2) -> Any:
    """The numbers of the whole batch, drawn once."""
    return t.joined(partial(_added, t), x, _noise(x, seed))


def _seed_of_shard(t: Towers, x: Any) -> Any:
    """Seeds are numbered by shard: no two draw the same, and none what the batch would have drawn."""

    def tower(part: Any, index: int) -> Any:
        return t.model(part + _noise(part, 2 + index))

    return tf.concat(on_each(t.names, tower, tf.split(x, t.count), range(t.count)), axis=0)


def _shuffled(t: Towers, x: Any) -> Any:
    return tf.random.shuffle(t.joined(t.model, x))


def _unseeded(t: Towers, x: Any) -> Any:
    return t.joined(lambda part: t.model(part + tf.random.normal(tf.shape(part))), x)


def _dropout(x: Any) -> Any:
    return tf.nn.experimental.stateless_dropout(tf.ones_like(x), 0.5, seed=[3, 4])


def _truncated(x: Any) -> Any:
    return tf.random.stateless_truncated_normal(tf.shape(x), seed=[5, 6])


def _sampled(x: Any) -> Any:
    drawn = tf.random.stateless_categorical(tf.zeros_like(x), 1, seed=[7, 8])
    return tf.cast(drawn, x.dtype)


def _keras_noise(devices: Devices) -> Case:
    layer = tf.keras.layers.GaussianNoise(0.5, seed=1)
    return _drawn(lambda x: layer(tf.zeros_like(x), training=True))(devices)


def _generator(devices: Devices) -> Case:
    generator = tf.random.Generator.from_seed(11)
    return _drawn(lambda x: generator.normal(tf.shape(x)))(devices)


def _keras_dropout(devices: Devices) -> Case:
    layer = tf.keras.layers.Dropout(0.5, seed=1)
    return _drawn(lambda x: layer(tf.ones_like(x), training=True), use=_multiplied)(devices)


def _generator_dropout(devices: Devices) -> Case:
    """A generator gives each shard its next numbers, not the part of those of the whole batch."""
    generator = tf.random.Generator.from_seed(3)
    return _drawn(lambda x: 2.0 * tf.cast(generator.uniform(tf.shape(x)) < 0.5, x.dtype), use=_multiplied)(devices)


FAULTS = (
    Fault(
        "R01-same-seed",
        "one seed for every shard",
        "tensorflow 33297",
        _drawn(_half_dropped, use=_multiplied),
        _SAME,
        rule="C601",
    ),
    Fault(
        "R01-unseeded",
        "dropout without a seed",
        "tensorflow 33297",
        _drawn(_half_dropped, "nondeterminism", use=_multiplied, in_shard=_unseeded_dropout),
        "drawn without a seed",
        rule="C601",
    ),
    Fault(
        "R01-generator", "a generator called once per shard", "tensorflow 33297", _generator_dropout, _OWN, rule="C601"
    ),
    Fault(
        "R01-keras-dropout",
        "a Keras Dropout called once per shard",
        "tensorflow 33297",
        _keras_dropout,
        _OWN,
        rule="C601",
    ),
    Fault("R02-same-noise", "the same noise in each shard", "tensorflow 33297", _drawn(_noise), _SAME, rule="C601"),
    Fault(
        "R02-same-dropout",
        "the same dropout mask in each shard",
        "tensorflow 33297",
        _drawn(_dropout),
        _SAME,
        rule="C601",
    ),
    Fault(
        "R02-same-truncated",
        "the same truncated noise in each shard",
        "made up for this list",
        _drawn(_truncated),
        _SAME,
        rule="C601",
    ),
    Fault(
        "R02-same-classes",
        "the same sampled classes in each shard",
        "made up for this list",
        _drawn(_sampled),
        _SAME,
        rule="C601",
    ),
    Fault(
        "R03-keras-noise",
        "a Keras GaussianNoise called once per shard",
        "tensorflow 33297",
        _keras_noise,
        _OWN,
        rule="C601",
    ),
    Fault(
        "R03-generator-noise",
        "noise of a generator called once per shard",
        "public code",
        _generator,
        _OWN,
        rule="C601",
    ),
    Fault(
        "R03-seed-of-shard",
        "a different seed for each shard",
        "made up for this list",
        slip(_noisy, _seed_of_shard, _seeded),
        _OWN,
        rule="C601",
    ),
    Fault(
        "R04-another-seed",
        "random numbers drawn with a different seed than the reference's",
        "made up for this list",
        slip(_noisy, partial(_seeded, seed=3), _seeded),
        "random numbers.*different seed",
        rule="C601",
    ),
    Fault(
        "R05-unseeded-noise",
        "noise without a seed",
        "tensorflow 33297",
        slip(_noisy, _unseeded, _seeded, "nondeterminism"),
        "drawn without a seed",
        rule="C601",
    ),
    Fault(
        "R06-unseeded-shuffle",
        "rows shuffled without a seed",
        "public code",
        slip(Towers.model, _shuffled, Towers.joined_model, "nondeterminism"),
        "drawn without a seed",
        rule="C601",
    ),
)
