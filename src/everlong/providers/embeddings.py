"""The embedding model that the user names in ``search.embeddings``: an endpoint, on this machine or elsewhere.

None is ever chosen unasked. Secrets are taken out of every text that goes to one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from everlong.errors import ConfigError, EverlongError, MalformedReply
from everlong.extras import install_command
from everlong.providers.client import need, official_client
from everlong.providers.endpoints import ENDPOINTS, NO_KEY, Endpoint, ModelName, endpoint_for, find_key
from everlong.providers.failures import classify
from everlong.redaction import redact

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from everlong.config import Settings


__all__ = ["EndpointModel", "embedder_for", "usable_embedder"]

OFF = "off"
_KEY = "search.embeddings"
_AT_ONCE = 64
_QUERY_SECONDS, _SECONDS = 5.0, 60.0


def embedder_for(settings: Settings, env: Mapping[str, str] | None = None) -> EndpointModel | None:
    """Return the model that ``search.embeddings`` names; None if it is off. Loads and asks nothing yet.

    Raises:
        ConfigError: the name means no endpoint, or a package is missing.
        AuthenticationFailed: the endpoint needs a key and there is none.
    """
    name = settings.search.embeddings
    if name == OFF:
        return None
    provider, _, model = name.partition(":")
    own = settings.providers
    known = {*ENDPOINTS, *own}
    if not model or provider not in known or (endpoint := endpoint_for(provider, own)).api != "openai":
        able = ", ".join(sorted(one for one in known if endpoint_for(one, own).api == "openai"))
        raise ConfigError(
            f"search.embeddings: {name!r} is no PROVIDER:MODEL whose provider speaks OpenAI's format; "
            f"name a model of {able}, or off",
            key=_KEY,
        )
    return EndpointModel(ModelName(provider, model), endpoint, find_key(endpoint, env))


def usable_embedder(settings: Settings, warn: Callable[[str], None]) -> EndpointModel | None:
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
            client = official_client("OpenAI", self._key or NO_KEY, self._endpoint.base_url, seconds)
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
