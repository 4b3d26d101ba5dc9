"""Programs with Hugging Face's TensorFlow models, with few layers and random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from model_cases import Case, Model, mean_of_means, split, step, swapped_parts, towers, towers_that_drop_rows

from harness import Verdict
from harness.faults.samples import integers, sample

GRAPH = ("graph",)
EAGER = ("eager",)

_WORDS = 40
_LENGTH = 6


def model(
    name: str,
    inputs: Callable[[], Mapping[str, Any]],
    *,
    head: str = "Model",
    output: str = "last_hidden_state",
    training: bool = False,
    **options: Any,
) -> Callable[[], Model]:
    """``TF<name><head>`` with the options of ``<name>Config``."""

    def make() -> Model:
        import tensorflow as tf
        import transformers

        tf.random.set_seed(3)
        config = getattr(transformers, f"{name}Config")(**options)
        made = getattr(transformers, f"TF{name}{head}")(config)
        given = dict(inputs())

        def fn(**given: Any) -> Any:
            return made(given, training=training)[output]

        with tf.device("CPU:0"):
            fn(**given)
        return fn, given, made.trainable_variables

    return make


def words(rows: int = 4) -> Callable[[], Mapping[str, Any]]:
    """Token numbers and a mask of what is no padding."""

    def make() -> Mapping[str, Any]:
        mask = np.ones((rows, _LENGTH), "int32")
        mask[1::2, 4:] = 0
        return {"input_ids": integers(_WORDS - 4, rows, _LENGTH).astype("int32") + 3, "attention_mask": mask}

    return make


def tokens(rows: int = 4) -> Callable[[], Mapping[str, Any]]:
    """Token numbers alone."""
    return lambda: {"input_ids": words(rows)()["input_ids"]}


def pairs(rows: int = 4) -> Callable[[], Mapping[str, Any]]:
    """Token numbers of an encoder and of a decoder."""
    return lambda: {**tokens(rows)(), "decoder_input_ids": words(rows)()["input_ids"][:, ::-1].copy()}


def images(rows: int = 4, size: int = 32) -> Callable[[], Mapping[str, Any]]:
    """Images, channels first."""
    return lambda: {"pixel_values": sample(rows, 3, size, size)}


_BERT: dict[str, Any] = {
    "vocab_size": _WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
_GPT: dict[str, Any] = {"vocab_size": _WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
_BART: dict[str, Any] = {
    "vocab_size": _WORDS,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 32,
}
_T5: dict[str, Any] = {"vocab_size": _WORDS, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
_VIT: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 16,
    **{name: size for name, size in _BERT.items() if name not in ("vocab_size", "max_position_embeddings")},
}

MODELS: list[tuple[str, Callable[[], Model]]] = [
    ("Bert", model("Bert", words(), **_BERT)),
    ("GPT2", model("GPT2", words(), **_GPT)),
    ("DistilBert", model("DistilBert", words(), vocab_size=_WORDS, dim=16, n_layers=2, n_heads=2, hidden_dim=32)),
    ("Roberta", model("Roberta", words(), **_BERT)),
    ("RobertaPreLayerNorm", model("RobertaPreLayerNorm", words(), **_BERT)),
    ("Camembert", model("Camembert", words(), **_BERT)),
    ("XLMRoberta", model("XLMRoberta", words(), **_BERT)),
    ("Albert", model("Albert", words(), embedding_size=8, **_BERT)),
    ("Electra", model("Electra", words(), embedding_size=8, **_BERT)),
    ("MPNet", model("MPNet", words(), **_BERT)),
    ("ConvBert", model("ConvBert", words(), embedding_size=16, conv_kernel_size=3, **_BERT)),
    ("RemBert", model("RemBert", words(), input_embedding_size=8, **_BERT)),
    ("Deberta", model("Deberta", words(), **_BERT)),
    ("DebertaV2", model("DebertaV2", words(), relative_attention=True, pos_att_type=["p2c", "c2p"], **_BERT)),
    ("LayoutLM", model("LayoutLM", words(), **_BERT)),
    ("Esm", model("Esm", words(), pad_token_id=1, mask_token_id=2, **_BERT)),
    ("RoFormer", model("RoFormer", words(), **_BERT)),
    (
        "Funnel",
        model(
            "Funnel",
            words(),
            vocab_size=_WORDS,
            block_sizes=[1, 1],
            num_decoder_layers=1,
            d_model=16,
            n_head=2,
            d_head=8,
            d_inner=32,
        ),
    ),
    (
        "MobileBert",
        model("MobileBert", words(), embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16, **_BERT),
    ),
    ("OpenAIGPT", model("OpenAIGPT", words(), **_GPT)),
    ("GPTJ", model("GPTJ", tokens(), rotary_dim=4, **_GPT)),
    ("CTRL", model("CTRL", tokens(), dff=32, **_GPT)),
    ("XLNet", model("XLNet", words(), vocab_size=_WORDS, d_model=16, n_layer=2, n_head=2, d_inner=32)),
    ("XLM", model("XLM", words(), vocab_size=_WORDS, emb_dim=16, n_layers=2, n_heads=2)),
    (
        "OPT",
        model(
            "OPT",
            words(),
            word_embed_proj_dim=16,
            vocab_size=_WORDS,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            ffn_dim=32,
            max_position_embeddings=32,
        ),
    ),
    ("Bart", model("Bart", pairs(), **_BART)),
    ("Marian", model("Marian", pairs(), pad_token_id=0, **_BART)),
    ("Pegasus", model("Pegasus", pairs(), **_BART)),
    ("Blenderbot", model("Blenderbot", pairs(), **_BART)),
    ("T5", model("T5", pairs(), **_T5)),
    ("T5 encoder", model("T5", tokens(), head="EncoderModel", **_T5)),
    ("ViT", model("ViT", images(), **_VIT)),
    ("DeiT", model("DeiT", images(), **_VIT)),
    (
        "Swin",
        model(
            "Swin", images(), image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4
        ),
    ),
    ("ConvNext", model("ConvNext", images(), hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1])),
    ("ResNet", model("ResNet", images(), embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")),
    (
        "RegNet",
        model("RegNet", images(), embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], groups_width=4),
    ),
    ("Bert for masked words", model("Bert", words(), head="ForMaskedLM", output="logits", **_BERT)),
    ("Bert classifier", model("Bert", words(), head="ForSequenceClassification", output="logits", **_BERT)),
    ("GPT2 logits", model("GPT2", words(), head="LMHeadModel", output="logits", **_GPT)),
]

CASES = [
    *(Case(name, split(make), modes=GRAPH if at % 2 else EAGER) for at, (name, make) in enumerate(MODELS)),
    Case("GPT2 eager", split(model("GPT2", words(), **_GPT)), modes=EAGER),
    Case("Bert graph", split(model("Bert", words(), **_BERT)), modes=GRAPH),
    Case("Bert towers", step(model("Bert", words(5), **_BERT)), modes=GRAPH),
    Case("T5 towers", towers(model("T5", pairs(5), **_T5)), modes=EAGER),
    Case(
        "Bert in training",
        split(model("Bert", words(), training=True, **_BERT), variables=0),
        Verdict.UNKNOWN,
        ("random numbers",),
        modes=EAGER,
    ),
    Case(
        "GPT2 rows dropped",
        towers_that_drop_rows(model("GPT2", tokens(5), **_GPT)),
        Verdict.FAIL,
        ("Row 4 of 5 was dropped",),
        modes=EAGER,
    ),
    Case(
        "Roberta parts swapped",
        swapped_parts(model("Roberta", words(), **_BERT)),
        Verdict.FAIL,
        ("order",),
        modes=GRAPH,
    ),
    Case(
        "Bert classifier mean of means",
        mean_of_means(model("Bert", words(5), head="ForSequenceClassification", output="logits", **_BERT)),
        Verdict.FAIL,
        ("mean of means",),
        modes=EAGER,
    ),
]
