"""Programs with the backbones of keras-hub, with few layers and random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from model_cases import Case, Model, split, step, swapped_parts, towers, towers_on_one_device, towers_that_drop_rows

from harness import Verdict
from harness.faults.samples import integers, sample

GRAPH = ("graph",)
EAGER = ("eager",)

_LAYERS: dict[str, Any] = {"num_layers": 2, "hidden_dim": 16, "intermediate_dim": 32}
_ENCODER: dict[str, Any] = {"vocabulary_size": 40, "num_heads": 2, **_LAYERS}
_DECODER: dict[str, Any] = {"vocabulary_size": 40, "num_query_heads": 2, "num_key_value_heads": 1, **_LAYERS}
_CONVOLUTIONS: dict[str, Any] = {"image_shape": (16, 16, 3)}


def text_model(
    name: str, rows: int = 4, *, segments: bool = False, training: bool = False, **options: Any
) -> Callable[[], Model]:
    """A backbone of token numbers and a mask of what is no padding."""

    def make() -> Model:
        import keras
        import keras_hub
        import tensorflow as tf

        keras.utils.set_random_seed(2)
        model = getattr(keras_hub.models, name)(**options)
        mask = np.ones((rows, 6), "int32")
        mask[1::2, 4:] = 0
        inputs = {"token_ids": integers(40, rows, 6).astype("int32"), "padding_mask": mask}
        if segments:
            inputs["segment_ids"] = np.zeros((rows, 6), "int32")
        if name == "FNetBackbone":
            del inputs["padding_mask"]

        def fn(**given: Any) -> Any:
            return model(given, training=training)

        with tf.device("CPU:0"):
            fn(**inputs)
        return fn, inputs, model.trainable_variables

    return make


def pair_model(name: str, rows: int = 4, **options: Any) -> Callable[[], Model]:
    """A backbone of an encoder's and a decoder's tokens."""

    def make() -> Model:
        import keras
        import keras_hub
        import tensorflow as tf

        keras.utils.set_random_seed(2)
        model = getattr(keras_hub.models, name)(**options)
        inputs: dict[str, Any] = {}
        for part in ("encoder", "decoder"):
            inputs[f"{part}_token_ids"] = integers(40, rows, 6, seed=len(part)).astype("int32")
            inputs[f"{part}_padding_mask"] = np.ones((rows, 6), "int32")
        if name == "WhisperBackbone":
            del inputs["encoder_token_ids"], inputs["encoder_padding_mask"]
            inputs["encoder_features"] = sample(rows, 8, 6)

        def fn(**given: Any) -> Any:
            return model(given)

        with tf.device("CPU:0"):
            fn(**inputs)
        return fn, inputs, model.trainable_variables

    return make


def image_model(name: str, rows: int = 4, *, training: bool = False, **options: Any) -> Callable[[], Model]:
    """A backbone of images of 16 x 16, or of the size of its options."""

    def make() -> Model:
        import keras
        import keras_hub
        import tensorflow as tf

        keras.utils.set_random_seed(2)
        shape = options.get("image_shape") or options["input_shape"]
        model = getattr(keras_hub.models, name)(**options)

        def fn(images: Any) -> Any:
            return model(images, training=training)

        images = sample(rows, *shape)
        with tf.device("CPU:0"):
            fn(images)
        return fn, {"images": images}, model.trainable_variables

    return make


_BERT: dict[str, Any] = {"segments": True, **_ENCODER}
_RESNET: dict[str, Any] = {
    "input_conv_filters": [64],
    "input_conv_kernel_sizes": [3],
    "stackwise_num_filters": [64, 64],
    "stackwise_num_blocks": [1, 1],
    "stackwise_num_strides": [1, 2],
    "block_type": "basic_block",
    **_CONVOLUTIONS,
}
_VIT: dict[str, Any] = {"image_shape": (16, 16, 3), "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}

#: Backbones by name, each with the function that makes it.
TEXT: list[tuple[str, Callable[[], Model]]] = [
    ("Albert", text_model("AlbertBackbone", segments=True, embedding_dim=8, **_ENCODER)),
    ("Bert", text_model("BertBackbone", **_BERT)),
    ("Bloom", text_model("BloomBackbone", **_ENCODER)),
    ("DebertaV3", text_model("DebertaV3Backbone", bucket_size=8, **_ENCODER)),
    ("DistilBert", text_model("DistilBertBackbone", **_ENCODER)),
    ("Falcon", text_model("FalconBackbone", **{**_LAYERS, "vocabulary_size": 40, "num_attention_heads": 2})),
    ("FNet", text_model("FNetBackbone", segments=True, **{**_LAYERS, "vocabulary_size": 40})),
    ("Gemma", text_model("GemmaBackbone", head_dim=8, **_DECODER)),
    ("GPT2", text_model("GPT2Backbone", **_ENCODER)),
    ("GPTNeoX", text_model("GPTNeoXBackbone", **_ENCODER)),
    ("Llama", text_model("LlamaBackbone", **_DECODER)),
    ("Llama3", text_model("Llama3Backbone", **_DECODER)),
    ("Mistral", text_model("MistralBackbone", **_DECODER)),
    ("Mixtral", text_model("MixtralBackbone", num_experts=2, top_k=1, **_DECODER)),
    ("OPT", text_model("OPTBackbone", **_ENCODER)),
    ("Phi3", text_model("Phi3Backbone", **_DECODER)),
    ("Qwen", text_model("QwenBackbone", **_DECODER)),
    ("Qwen3", text_model("Qwen3Backbone", head_dim=8, **_DECODER)),
    ("Roberta", text_model("RobertaBackbone", **_ENCODER)),
    ("XLMRoberta", text_model("XLMRobertaBackbone", **_ENCODER)),
    ("Bart", pair_model("BartBackbone", **_ENCODER)),
    ("T5", pair_model("T5Backbone", **_ENCODER)),
    ("Whisper", pair_model("WhisperBackbone", num_mels=6, max_encoder_sequence_length=8, **_ENCODER)),
]
IMAGES: list[tuple[str, Callable[[], Model]]] = [
    ("ResNet", image_model("ResNetBackbone", **_RESNET)),
    ("DenseNet", image_model("DenseNetBackbone", stackwise_num_repeats=[1, 1], growth_rate=4, image_shape=(32, 32, 3))),
    ("VGG", image_model("VGGBackbone", stackwise_num_repeats=[1, 1], stackwise_num_filters=[4, 8], **_CONVOLUTIONS)),
    ("ViT", image_model("ViTBackbone", mlp_dim=32, **_VIT)),
    ("DeiT", image_model("DeiTBackbone", intermediate_dim=32, **_VIT)),
    ("DINOV2", image_model("DINOV2Backbone", intermediate_dim=32, position_embedding_shape=(16, 16, 3), **_VIT)),
]

CASES = [
    *(Case(name, split(make), modes=GRAPH if at % 2 else EAGER) for at, (name, make) in enumerate(TEXT + IMAGES)),
    Case("Bert towers", step(text_model("BertBackbone", 5, **_BERT)), modes=GRAPH),
    Case("Llama towers", towers(text_model("LlamaBackbone", 5, **_DECODER)), modes=EAGER),
    Case(
        "Bert in training",
        split(text_model("BertBackbone", training=True, **_BERT), variables=0),
        Verdict.FAIL,
        ("Random numbers are drawn once per shard", "in layer "),
        modes=EAGER,
    ),
    Case(
        "ResNet in training",
        split(image_model("ResNetBackbone", 8, training=True, **_RESNET), variables=0),
        Verdict.FAIL,
        ("not row-wise", "moving_mean"),
        modes=EAGER,
    ),
    Case(
        "GPT2 rows dropped",
        towers_that_drop_rows(text_model("GPT2Backbone", 5, **_ENCODER)),
        Verdict.FAIL,
        ("Row 4 of 5 was dropped",),
    ),
    Case("OPT parts swapped", swapped_parts(text_model("OPTBackbone", **_ENCODER)), Verdict.FAIL, ("order",)),
    Case(
        "ViT on one device",
        towers_on_one_device(image_model("ViTBackbone", mlp_dim=32, **_VIT)),
        Verdict.FAIL,
        ("CPU:1",),
    ),
]
