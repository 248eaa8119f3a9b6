"""A tiny ONNX embedding model for tests: it looks up a fixed vector for each word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 16
WORDS = ("[PAD]", "[UNK]", "the", "car", "is", "blue", "rain", "falls")


def make_onnx_folder(folder: Path, *, with_types: bool = True) -> Path:
    """Write a model that looks up a fixed vector for each word, and a tokenizer of whole words."""
    from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415 - only here

    folder.mkdir(parents=True, exist_ok=True)
    table = np.random.default_rng(7).standard_normal((len(WORDS), SIZE)).astype(np.float32)
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if with_types else [])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "length", SIZE])
    lookup = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    graph = helper.make_graph([lookup], "words", inputs, [output], [numpy_helper.from_array(table, "table")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    vocabulary = {word: place for place, word in enumerate(WORDS)}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    return folder
