"""Wrong randomness: numbers drawn by each shard, of another seed, without a seed (R02 to R06)."""

from __future__ import annotations

from collections.abc import Callable
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


def _drawn(draw: Callable[[Any], Any]) -> Callable[[Devices], Case]:
    """Numbers that ``draw`` draws in the shape of a shard; the twin splits those of the batch."""
    return slip(
        lambda t, x: t.model(x + draw(x)),
        lambda t, x: t.joined(lambda part: t.model(part + draw(part)), x),
        lambda t, x: t.joined(lambda part, own: t.model(part + own), x, draw(x)),
    )


def _noisy(t: Towers, x: Any, seed: int = 2) -> Any:
    return t.model(x + _noise(x, seed))


def _noisy_right(t: Towers, x: Any) -> Any:
    return _other_seed(t, x, 2)


def _other_seed(t: Towers, x: Any, seed: int = 3) -> Any:
    """The numbers of the whole batch, drawn once with another seed."""
    return t.joined(lambda part, own: t.model(part + own), x, _noise(x, seed))


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


FAULTS = (
    Fault("R02-same-noise", "the same noise in each shard", "tensorflow 33297", _drawn(_noise), _SAME),
    Fault("R02-same-dropout", "the same dropout mask in each shard", "tensorflow 33297", _drawn(_dropout), _SAME),
    Fault("R02-same-truncated", "the same truncated noise in each shard", "own attack", _drawn(_truncated), _SAME),
    Fault("R02-same-classes", "the same sampled classes in each shard", "own attack", _drawn(_sampled), _SAME),
    Fault("R03-keras-noise", "a Keras GaussianNoise called once per shard", "tensorflow 33297", _keras_noise, _OWN),
    Fault("R03-generator-noise", "noise of a generator called once per shard", "public code", _generator, _OWN),
    Fault(
        "R03-seed-of-shard", "a different seed for each shard", "own", slip(_noisy, _seed_of_shard, _noisy_right), _OWN
    ),
    Fault(
        "R04-another-seed",
        "random numbers drawn with a different seed",
        "own attack",
        slip(_noisy, _other_seed, _noisy_right),
        "random numbers.*different seed",
    ),
    Fault(
        "R05-unseeded-noise",
        "noise without a seed",
        "tensorflow 33297",
        slip(_noisy, _unseeded, _noisy_right, "nondeterminism"),
        "drawn without a seed",
    ),
    Fault(
        "R06-unseeded-shuffle",
        "rows shuffled without a seed",
        "public code",
        slip(lambda t, x: t.model(x), _shuffled, lambda t, x: t.joined(t.model, x), "nondeterminism"),
        "drawn without a seed",
    ),
)
