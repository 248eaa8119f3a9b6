"""Routes: the upstream of each API, or of models by name, and the key for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from everlong.errors import AuthenticationFailed, ConfigError
from everlong.gateway.auth import Refused
from everlong.gateway.body import model_in
from everlong.providers.endpoints import ENDPOINTS, NO_KEY, endpoint_for, find_key

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from multidict import CIMultiDict

    from everlong.config import Settings

__all__ = ["Route", "Routes"]

_OFFICIAL = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
_WITHOUT_VERSION = frozenset({"chatgpt.com"})
"""Hosts whose paths have no version: Codex is served there for ChatGPT accounts."""
_CREDENTIALS = ("Authorization", "x-api-key")


@dataclass(frozen=True, slots=True)
class Route:
    """One upstream."""

    base_url: str
    api: str
    provider: str
    key: str | None = None
    """A key that replaces the client's own."""
    spare_key: str | None = None
    """A key for clients that sent the gateway's key and none for the upstream."""
    recalls: bool = False
    """True if the model may look up what was said before."""

    @property
    def cached_as(self) -> str:
        """The provider whose caching rules hold: every upstream that speaks Anthropic's API takes its markers."""
        return "anthropic" if self.provider == "custom" and self.api == "anthropic" else self.provider

    @property
    def shown(self) -> str:
        """The upstream without anything secret."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def url(self, path: str) -> str:
        """Return the address of a path of the gateway at this upstream."""
        base = self.base_url.rstrip("/")
        if (base.endswith("/v1") or urlsplit(base).hostname in _WITHOUT_VERSION) and path.startswith("/v1/"):
            path = path[3:]
        return base + path

    def authorize(self, headers: CIMultiDict[str], spoken: frozenset[str] = frozenset()) -> bool:
        """Remove the gateway's own key, which came in the headers ``spoken``, and add the upstream's key.

        Returns whether the request goes on with a key of the gateway's, which others share.
        """
        for name in spoken:
            headers.popall(name, None)
        key = self.key
        if key is None and spoken and not any(name in headers for name in _CREDENTIALS):
            key = self.spare_key
        if key is None:
            return False
        for name in _CREDENTIALS:
            headers.popall(name, None)
        if self.api == "anthropic":
            headers["x-api-key"] = key
        else:
            headers["Authorization"] = f"Bearer {key}"
        return True

    def check_key(self, upstream: ClientResponse, headers: CIMultiDict[str], spoken: frozenset[str]) -> None:
        """Refuse a request for which the upstream wants a key, though it came with a key of the gateway only."""
        if upstream.status == 401 and spoken and not any(name in headers for name in _CREDENTIALS):
            upstream.close()
            raise Refused(
                401,
                f"the upstream {self.shown} wants a key of its own, and this request has only one of the gateway's; "
                "name it in gateway.routes.PATTERN.key_variable where the gateway runs, or send it as the "
                "API's key and the gateway's in the header x-everlong-key",
            )


class Routes:
    """The routes of a gateway: they choose an upstream for each request.

    Requests without a route go to ``upstream``, that of the settings, or else by API to one of ``upstreams``.

    Raises:
        ConfigError: a route names an environment variable that is not set.
    """

    def __init__(
        self, settings: Settings, upstream: str | None = None, upstreams: Mapping[str, str] | None = None
    ) -> None:
        self._settings = settings
        self._spare_keys: dict[str, str | None] = {}
        above = upstream or settings.gateway.upstream
        places = {api: above or (upstreams or {}).get(api) or official for api, official in _OFFICIAL.items()}
        self.default = {api: self._for(api, url) for api, url in places.items()}
        """The upstream of each API."""
        self._routes = [(pattern, self._routed(pattern)) for pattern in settings.gateway.routes]

    @property
    def shown(self) -> str:
        """The upstreams, for people."""
        places = dict.fromkeys(route.shown for route in self.default.values())
        for _, routes in self._routes:
            places |= dict.fromkeys(route.shown for route in routes.values())
        return ", ".join(places)

    @property
    def official(self) -> list[str]:
        """The APIs whose requests all go to the API's own address."""
        return [
            api
            for api, url in _OFFICIAL.items()
            if all(urlsplit(url).hostname == urlsplit(one.base_url).hostname for one in self.all if one.api == api)
        ]

    @property
    def all(self) -> list[Route]:
        """Every upstream."""
        return [*self.default.values(), *(route for _, routes in self._routes for route in routes.values())]

    def find(self, api: str, model: str) -> Route:
        """Return the upstream for a model: the first route whose pattern fits, or else that of the API."""
        for pattern, routes in self._routes:
            if fnmatchcase(model, pattern):
                return routes[api]
        return self.default[api]

    @property
    def is_split(self) -> bool:
        """True if requests go to more than one place, depending on their model."""
        return any(
            route.base_url != self.default[api].base_url for _, found in self._routes for api, route in found.items()
        )

    async def find_for(self, api: str, body: bytes | None) -> tuple[str, Route]:
        """Return the model that a body names, and its upstream, for a body whose conversation could not be found.

        A conversation may only go where its model's conversations go. If models have different upstreams, one whose
        model is unknown goes nowhere.

        Raises:
            Refused: its upstream cannot be told.
        """
        model = None if body is None else await asyncio.to_thread(model_in, body)
        if model is not None:
            return model, self.find(api, model)
        if self.is_split:
            raise Refused(
                400, "this request names no model that can be read, so nobody can tell which upstream it is for"
            )
        return "", self.default[api]

    def _routed(self, pattern: str) -> dict[str, Route]:
        given = self._settings.gateway.routes[pattern]
        key = None
        if given.key_variable is not None:
            key = os.environ.get(given.key_variable, "").strip()
            if not key:
                raise ConfigError(
                    f"gateway.routes.{pattern}.key_variable is {given.key_variable}, but no such environment variable "
                    "is set; set it to the upstream's key",
                    key=f"gateway.routes.{pattern}.key_variable",
                )
        found = {}
        for api, usual in self.default.items():
            route = usual if given.base_url is None else self._for(api, given.base_url)
            found[api] = replace(route, key=key, recalls=given.recall)
        return found

    def _for(self, api: str, url: str) -> Route:
        provider = self._provider(url)
        return Route(url, api, provider, spare_key=self._spare_key(provider))

    def _provider(self, url: str) -> str:
        """Return the provider of an address: an endpoint of the user's own, a known provider, or an empty name."""
        for name, own in self._settings.providers.items():
            if own.base_url is not None and own.base_url.rstrip("/") == url.rstrip("/"):
                return name
        host = urlsplit(url).hostname or ""
        for name in ("anthropic.com", "openai.com", "openrouter.ai"):
            if host == name or host.endswith(f".{name}"):
                return name.partition(".")[0]
        return "custom"

    def _spare_key(self, provider: str) -> str | None:
        """Return the configured key of a provider; only if the gateway has keys of its own."""
        if not self._settings.gateway.keys or provider not in {*ENDPOINTS, *self._settings.providers}:
            return None
        if provider not in self._spare_keys:
            try:
                key = find_key(endpoint_for(provider, self._settings.providers))
            except AuthenticationFailed:
                key = NO_KEY
            self._spare_keys[provider] = None if key == NO_KEY else key
        return self._spare_keys[provider]
