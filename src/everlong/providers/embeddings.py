"""Embedding models that the user names in ``search.embeddings``: a folder on this machine, or an endpoint.

A folder holds an ONNX file and its tokenizer, such as MiniLM, bge-small or multilingual e5; it runs on the CPU, and
sends nothing anywhere. No endpoint is ever chosen unasked. Secrets are taken out of every text that goes to one.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.errors import ConfigError, EverlongError, MalformedReply
from everlong.extras import install_command
from everlong.providers.client import need
from everlong.providers.endpoints import ENDPOINTS, NO_KEY, Endpoint, ModelName, endpoint_for, find_key
from everlong.providers.failures import classify
from everlong.providers.openai_api import openai_client
from everlong.redaction import redact

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from everlong.config import Settings


__all__ = ["EndpointModel", "OnnxModel", "embedder_for", "usable_embedder"]

OFF = "off"
_KEY = "search.embeddings"
_AT_ONCE = 64
_QUERY_SECONDS, _SECONDS = 5.0, 60.0


def embedder_for(settings: Settings, env: Mapping[str, str] | None = None) -> EndpointModel | OnnxModel | None:
    """Return the model that ``search.embeddings`` names; None if it is off. Loads and asks nothing yet.

    Raises:
        ConfigError: the name means neither a folder nor an endpoint, or a package is missing.
        AuthenticationFailed: the endpoint needs a key and there is none.
    """
    name = settings.search.embeddings
    if name == OFF:
        return None
    provider, colon, model = name.partition(":")
    own = settings.providers
    if colon and model and provider in {*ENDPOINTS, *own}:
        endpoint = endpoint_for(provider, own)
        if endpoint.api != "openai":
            raise ConfigError(
                f"search.embeddings: {provider} has no embeddings endpoint of OpenAI's format; name another provider, "
                "a folder with an ONNX model, or off",
                key=_KEY,
            )
        return EndpointModel(ModelName(provider, model), endpoint, find_key(endpoint, env))
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"search.embeddings: {name!r} is neither a folder nor PROVIDER:MODEL with one of "
            f"{', '.join(sorted({*ENDPOINTS, *own}))}; name the folder of an ONNX model, a provider's model, or off",
            key=_KEY,
        )
    return OnnxModel(folder)


def usable_embedder(settings: Settings, warn: Callable[[str], None]) -> EndpointModel | OnnxModel | None:
    """Return the model that ``search.embeddings`` names; None, with a warning, if it cannot be used."""
    try:
        return embedder_for(settings)
    except EverlongError as error:
        warn(f"the search goes by words alone: {error}")
        return None


class EndpointModel:
    """An embedding model behind an endpoint that speaks OpenAI's format."""

    def __init__(self, name: ModelName, endpoint: Endpoint, key: str) -> None:
        need("openai", "search.embeddings")
        if find_spec("numpy") is None:
            raise ConfigError(
                f"search.embeddings needs the package numpy; install it with: {install_command('semantic')}", key=_KEY
            )
        self._name, self._endpoint, self._key = name, endpoint, key

    @property
    def model_id(self) -> str:
        """The provider and the model, and the address if it is not the provider's own."""
        known = ENDPOINTS.get(self._name.provider)
        is_own = known is None or known.base_url != self._endpoint.base_url
        return f"{self._name} at {self._endpoint.base_url}" if is_own else str(self._name)

    def embed(self, texts: Sequence[str], *, is_query: bool) -> NDArray[np.float32]:
        """Return a vector for each text, without the secrets in it."""
        import numpy as np  # noqa: PLC0415 - an optional package

        clean = [redact(text) for text in texts]
        rows: list[list[float]] = []
        for start in range(0, len(clean), _AT_ONCE):
            rows += self._ask(clean[start : start + _AT_ONCE], _QUERY_SECONDS if is_query else _SECONDS)
        if len({len(row) for row in rows}) > 1:
            raise self._malformed("the vectors differ in length")
        return np.array(rows, dtype=np.float32)

    def _ask(self, texts: list[str], seconds: float) -> list[list[float]]:
        try:
            client = openai_client(self._key or NO_KEY, self._endpoint.base_url, seconds)
            answer = client.embeddings.create(model=self._name.model, input=texts, encoding_format="float")
            found = {one.index: list(one.embedding) for one in answer.data}
        except Exception as error:
            raise classify(error, self._name.provider, self._name.model) from error
        if sorted(found) != list(range(len(texts))):
            raise self._malformed(f"{len(found)} vectors for {len(texts)} texts")
        return [found[place] for place in range(len(texts))]

    def _malformed(self, what: str) -> MalformedReply:
        provider, model = self._name
        return MalformedReply(f"{self._name} sent vectors that cannot be read: {what}", provider=provider, model=model)


_FILES = ("model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx")
_TOKENIZER = "tokenizer.json"
_MOST_TOKENS = 256
_AT_ONCE = 8
_BGE_QUERY = "Represent this sentence for searching relevant passages: "


class OnnxModel:
    """An embedding model in a folder.

    Raises:
        ConfigError: the folder has no model, or a package is missing.
    """

    def __init__(self, folder: Path) -> None:
        for package in ("numpy", "onnxruntime", "tokenizers"):
            if find_spec(package) is None:
                raise ConfigError(
                    f"search.embeddings needs the package {package}; install it with: {install_command('semantic')}",
                    key="search.embeddings",
                )
        self.folder = folder.expanduser().resolve()
        self._file = next((path for name in _FILES if (path := self.folder / name).is_file()), None)
        missing = " or ".join(_FILES[:2]) if self._file is None else _TOKENIZER
        if self._file is None or not (self.folder / _TOKENIZER).is_file():
            raise ConfigError(
                f"search.embeddings: there is no {missing} in {folder}; name the folder of an embedding model in ONNX "
                "format with its tokenizer.json, or say off",
                key="search.embeddings",
            )
        name = self.folder.name.lower()
        self._query, self._passage = _prefixes(name)
        self._pools_first = _pools_first(self.folder, name)
        self._tokenizer: Any = None
        self._session: Any = None
        self._loading = threading.Lock()
        self._id: str | None = None

    @property
    def model_id(self) -> str:
        """The folder's name, and a hash of the model's size and tokenizer: another model has another one."""
        if self._id is None:
            assert self._file is not None  # noqa: S101 - checked by the constructor
            told = hashlib.sha256((self.folder / _TOKENIZER).read_bytes())
            told.update(f"{self._file.name}:{self._file.stat().st_size}:{self._pools_first}".encode())
            self._id = f"onnx:{self.folder.name}:{told.hexdigest()[:12]}"
        return self._id

    def embed(self, texts: Sequence[str], *, is_query: bool) -> NDArray[np.float32]:
        """Return a vector for each text."""
        import numpy as np  # noqa: PLC0415 - an optional package

        with self._loading:
            if self._session is None:
                self._load()
        prefix = self._query if is_query else self._passage
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))  # so that little is padded
        found: list[NDArray[np.float32] | None] = [None] * len(texts)
        for start in range(0, len(order), _AT_ONCE):
            part = order[start : start + _AT_ONCE]
            vectors = self._run([prefix + texts[place] for place in part])
            for place, vector in zip(part, vectors, strict=True):
                found[place] = vector
        return np.array(found, dtype=np.float32)

    def _load(self) -> None:
        import onnxruntime  # noqa: PLC0415 - an optional package, and slow to load
        from tokenizers import Tokenizer  # noqa: PLC0415 - as above

        tokenizer = Tokenizer.from_file(str(self.folder / _TOKENIZER))
        tokenizer.enable_truncation(max_length=_MOST_TOKENS)
        tokenizer.enable_padding(**_padding(tokenizer))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = max(1, (os.cpu_count() or 2) // 2)
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads must not burn CPU
        session = onnxruntime.InferenceSession(str(self._file), options, providers=["CPUExecutionProvider"])
        self._tokenizer, self._session = tokenizer, session

    def _run(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np  # noqa: PLC0415 - as above

        encoded = self._tokenizer.encode_batch(texts)
        offered = {
            "input_ids": np.array([one.ids for one in encoded], np.int64),
            "attention_mask": np.array([one.attention_mask for one in encoded], np.int64),
            "token_type_ids": np.array([one.type_ids for one in encoded], np.int64),
        }
        taken = {one.name for one in self._session.get_inputs()}
        output = self._session.run(None, {name: value for name, value in offered.items() if name in taken})[0]
        if output.ndim == 2:  # the model pools by itself
            return np.asarray(output, np.float32)
        if self._pools_first:
            return np.asarray(output[:, 0], np.float32)
        mask = offered["attention_mask"][..., None].astype(np.float32)
        return np.asarray((output * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1.0), np.float32)


def _prefixes(name: str) -> tuple[str, str]:
    """Return the words that a model expects before a query and before a passage, by the folder's name."""
    if "e5" in name.replace("_", "-").split("-"):
        return "query: ", "passage: "
    if "bge" in name and "m3" not in name:
        return _BGE_QUERY, ""
    return "", ""


def _pools_first(folder: Path, name: str) -> bool:
    """Return whether the first token's vector stands for the text, rather than the mean of all tokens."""
    try:
        told = json.loads((folder / "1_Pooling" / "config.json").read_text("utf-8"))
        return bool(told.get("pooling_mode_cls_token"))
    except (OSError, ValueError, AttributeError):
        return "bge" in name


def _padding(tokenizer: Any) -> dict[str, Any]:
    """Return how a tokenizer pads, without a fixed length."""
    told = tokenizer.padding or {}
    wanted = {name: told[name] for name in ("direction", "pad_id", "pad_type_id", "pad_token") if name in told}
    if not wanted:
        for token in ("[PAD]", "<pad>"):
            ident = tokenizer.token_to_id(token)
            if ident is not None:
                return {"pad_id": ident, "pad_token": token}
    return wanted
