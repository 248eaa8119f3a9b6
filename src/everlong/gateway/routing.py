"""Where requests go: an upstream for each API, or for models by name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from multidict import CIMultiDict

    from everlong.config import Settings

__all__ = ["Route", "Routes"]

_OFFICIAL = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}


@dataclass(frozen=True, slots=True)
class Route:
    """One upstream."""

    base_url: str
    api: str
    provider: str
    key: str | None = None
    """A key that takes the place of the client's own."""
    recalls: bool = False
    """Whether the model may look up what was said before."""

    @property
    def shown(self) -> str:
        """The upstream without anything secret."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def url(self, path: str) -> str:
        """Where a path of ours is there."""
        base = self.base_url.rstrip("/")
        if base.endswith("/v1") and path.startswith("/v1/"):
            path = path[3:]
        return base + path

    def authorize(self, headers: CIMultiDict[str]) -> None:
        """Put the route's own key in, where it has one."""
        if self.key is None:
            return
        headers.popall("Authorization", None)
        headers.popall("x-api-key", None)
        if self.api == "anthropic":
            headers["x-api-key"] = self.key
        else:
            headers["Authorization"] = f"Bearer {self.key}"


class Routes:
    """Chooses an upstream."""

    def __init__(self, settings: Settings, upstream: str | None = None) -> None:
        self._gateway = settings.gateway
        self._upstream = upstream or settings.gateway.upstream
        self._default = {api: self._for(api, self._upstream or _OFFICIAL[api]) for api in _OFFICIAL}

    def default(self, api: str) -> Route:
        """The upstream of an API."""
        return self._default[api]

    def find(self, api: str, model: str) -> Route:
        """The upstream for a model: the first route whose pattern fits, else that of the API."""
        for pattern, route in self._gateway.routes.items():
            if fnmatchcase(model, pattern):
                key = os.environ.get(route.key_variable) if route.key_variable else None
                url = route.base_url or self._default[api].base_url
                return Route(url, api, _provider(url), key, route.recall)
        return self._default[api]

    @staticmethod
    def _for(api: str, url: str) -> Route:
        return Route(url, api, _provider(url))


def _provider(url: str) -> str:
    host = urlsplit(url).hostname or ""
    for name in ("anthropic", "openai", "openrouter"):
        if host.endswith((f"{name}.com", f"{name}.ai")):
            return name
    return "custom"
