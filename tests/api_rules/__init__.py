"""What the real APIs refuse, for the model server of our own tests and benchmarks.

Written from the APIs' documentation, apart from the code that makes requests. `install_rules` makes every `ModelServer`
of this process refuse it, in the words of the API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from everlong.testing import ModelServer
from everlong.testing.server import anthropic_api, openai_api, script
from everlong.testing.server.exchange import Api, CacheCharge
from everlong.testing.server.http import ServerReply
from tests.api_rules import seals
from tests.api_rules.anthropic import check_anthropic
from tests.api_rules.embeddings import PATH, embeddings_reply
from tests.api_rules.openai import check_openai
from tests.api_rules.prompt_cache import ServerCache, blocks_of
from tests.api_rules.responses import check_responses
from tests.api_rules.responses_server import TolerantServer

__all__ = ["install_cache", "install_rules", "use_clock"]

_caches: WeakKeyDictionary[ModelServer, ServerCache] = WeakKeyDictionary()


def install_rules() -> None:
    """Have every model server of this process check, count and cache by the rules of its API, and make embeddings."""
    ModelServer.check_body = _check_body  # type: ignore[method-assign]
    ModelServer.reply_elsewhere = _reply_elsewhere  # type: ignore[method-assign]
    anthropic_api.sign, anthropic_api.redact = seals.sign, seals.redact
    openai_api.seal, script.unseal = seals.seal, seals.unseal  # type: ignore[attr-defined]
    install_cache()


def install_cache() -> None:
    """Have every model server of this process count and cache prompts as its provider does."""
    ModelServer.count_tokens = _count_tokens  # type: ignore[method-assign]
    ModelServer.charge = _charge  # type: ignore[method-assign]


def use_clock(server: ModelServer, clock: Callable[[], float]) -> None:
    """Let what a server has cached expire by another clock."""
    _caches[server] = ServerCache(clock)


def _count_tokens(self: ModelServer, api: Api, body: Mapping[str, Any]) -> int:
    del self
    return sum(block.tokens for block in blocks_of(api, body))


def _charge(self: ModelServer, api: Api, body: Mapping[str, Any], tokens: int) -> CacheCharge:
    del tokens
    cache = _caches.setdefault(self, ServerCache(time.monotonic))
    bill = cache.anthropic if api == "anthropic" else cache.openai
    return bill(blocks_of(api, body), str(body.get("model")))


def _reply_elsewhere(self: ModelServer, path: str, raw: bytes, headers: Mapping[str, str]) -> ServerReply | None:
    return embeddings_reply(self, raw, headers) if path == PATH else None


def _check_body(self: ModelServer, api: Api, body: Any, headers: Mapping[str, str], *, counting: bool = False) -> None:
    if api == "anthropic":
        betas = headers.get("anthropic-beta", "")
        check_anthropic(body, betas=betas, counting=counting, alternate_roles=self.alternate_roles)
    elif api == "responses":
        check_responses(body, self.dialect, knows_compaction=isinstance(self, TolerantServer))
    else:
        check_openai(body, self.dialect)
