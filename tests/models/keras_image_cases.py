"""Programs with the models of ``keras.applications``: random weights, images of 32 x 32."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from model_cases import (
    Case,
    Model,
    Program,
    mean_of_means,
    split,
    swapped_parts,
    towers,
    towers_on_one_device,
    towers_that_drop_rows,
)

import harness
from harness import Devices, Verdict
from harness.faults.samples import sample

GRAPH = ("graph",)
EAGER = ("eager",)


@functools.lru_cache(maxsize=2)
def _model(name: str, size: int, **options: Any) -> Any:
    import keras

    keras.utils.set_random_seed(0)
    return getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10, **options)


def image_model(
    name: str, *, training: bool = False, rows: int = 4, size: int = 32, **options: Any
) -> Callable[[], Model]:
    """A model of ``keras.applications`` as a function of images."""

    def make() -> Model:
        model = _model(name, size, **options)

        def predict(images: Any) -> Any:
            return model(images, training=training)

        return predict, {"images": sample(rows, size, size, 3)}, model.trainable_variables

    return make


def stages(
    name: str, cut: str, *, training: bool = False, in_place: bool = True, **options: Any
) -> Callable[[Devices], Program]:
    """The layers up to ``cut`` on one device, the others on the next, the batch whole: its statistics are right."""

    def build(devices: Devices) -> Program:
        import keras
        import tensorflow as tf

        fn, inputs, _ = image_model(name, training=training, **options)()
        model = _model(name, 32, **options)
        first = keras.Model(model.inputs, model.get_layer(cut).output)
        second = keras.Model(model.get_layer(cut).output, model.outputs[0])
        if in_place:
            weights = second.get_weights()
            with tf.device(devices[1].name):
                second = keras.models.clone_model(second)
            second.set_weights(weights)

        def head(images: Any) -> Any:
            return first(images, training=training)

        def tail(hidden: Any) -> Any:
            return second(hidden, training=training)

        return Program(harness.pipeline([head, tail], devices[:2]), fn, inputs)

    return build


def _cases(name: str, cause: str = "not row-wise", **options: Any) -> list[Case]:
    inference = image_model(name, **options)
    return [
        Case(f"{name} eager", split(inference, variables=1), modes=EAGER),
        Case(f"{name} graph", split(inference, variables=0), modes=GRAPH),
        Case(f"{name} towers", towers(image_model(name, rows=5, **options)), modes=GRAPH),
        Case(
            f"{name} training",
            split(image_model(name, training=True, rows=8, **options), variables=0),
            Verdict.FAIL,
            (cause,),
            modes=EAGER,
        ),
    ]


_SMALL: dict[str, Any] = {"alpha": 0.35}

CASES = [
    *_cases("MobileNetV2", **_SMALL),
    *_cases("ResNet50"),
    # In training its blocks are left out at random.
    *_cases("EfficientNetB0", "Random numbers are drawn once per shard"),
    *_cases("DenseNet121"),
    Case(
        "MobileNetV2 training, stages",
        stages("MobileNetV2", "block_6_project_BN", training=True, **_SMALL),
        modes=EAGER,
    ),
    Case(
        "MobileNetV2 stages, weights elsewhere",
        stages("MobileNetV2", "block_6_project_BN", in_place=False, **_SMALL),
        Verdict.FAIL,
        ("variable is on another device",),
        modes=EAGER,
    ),
    Case("ResNet50 stages", stages("ResNet50", "conv3_block4_out"), modes=GRAPH),
    Case(
        "MobileNetV2 rows dropped",
        towers_that_drop_rows(image_model("MobileNetV2", rows=5, **_SMALL)),
        Verdict.FAIL,
        ("Row 4 of 5 was dropped",),
        modes=GRAPH,
    ),
    Case(
        "ResNet50 on one device",
        towers_on_one_device(image_model("ResNet50")),
        Verdict.FAIL,
        ("CPU:1",),
        modes=GRAPH,
    ),
    Case(
        "ResNet50 parts swapped",
        swapped_parts(image_model("ResNet50")),
        Verdict.FAIL,
        ("order",),
        modes=GRAPH,
    ),
    Case(
        "DenseNet121 mean of means",
        mean_of_means(image_model("DenseNet121")),
        Verdict.FAIL,
        ("mean of means of uneven shards",),
        modes=EAGER,
    ),
    *(
        Case(f"{name} {mode}", split(image_model(name, **options), variables=0), modes=(mode,))
        for mode, name, options in (
            ("eager", "MobileNet", {"alpha": 0.25}),
            ("graph", "MobileNetV3Small", {}),
            ("eager", "VGG16", {}),
            ("eager", "ResNet50V2", {}),
            ("graph", "NASNetMobile", {}),
            ("eager", "Xception", {"size": 71}),
            ("eager", "EfficientNetV2B0", {}),
        )
    ),
    # Keras compiles convolutions in groups with XLA, which cannot read a variable of another device.
    *(
        Case(
            f"ConvNeXtTiny {mode}",
            split(image_model("ConvNeXtTiny"), variables=0),
            Verdict.FAIL,
            ("XLA cannot read a variable of another device",),
            modes=(mode,),
        )
        for mode in ("eager", "graph")
    ),
]
