"""Models for plugins, under the user's settings. The host may count a call and let the user stop it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everlong.errors import ConfigError, PluginError, RequestRefused
from everlong.plugins.host import Host, current_host
from everlong.plugins.running import time_of_others

if TYPE_CHECKING:
    from everlong.model import Message
    from everlong.providers.base import CallOptions, Reply
    from everlong.providers.connection import Connection

__all__ = ["Wish", "ask_model", "model_for"]


@dataclass(frozen=True, slots=True)
class Wish:
    """The model that a plugin wants; by default the one that the user chose for such help."""

    model: str = ""
    provider: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    timeout: float | None = None


def ask_model(
    messages: Sequence[Message],
    wish: Wish | None = None,
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Reply:
    """Ask the model that the plugin names, or the one that the user chose for such help; return its answer."""
    host = current_host()
    connection = model_for(host, wish or Wish())
    call: CallOptions = {"max_tokens": max_tokens, "options": dict(options or {}) or None}
    if tools:
        call["tools"] = list(tools)
    ask = host.ask or (lambda provider, said, options: provider.complete(said, **options))
    with time_of_others():
        if temperature is not None:
            warmer: CallOptions = {**call, "options": {**(options or {}), "temperature": temperature}}
            try:
                return ask(connection, messages, warmer)
            except RequestRefused as refused:
                if "temperature" not in str(refused).lower():  # some models accept only their own value
                    raise
        return ask(connection, messages, call)


def model_for(host: Host, wish: Wish) -> Connection:
    """Return the model to ask: the one wished for, else that of ``auxiliary.compression``, else the main one."""
    from everlong.providers.auxiliary import auxiliary_connection  # noqa: PLC0415 - providers only where one is asked
    from everlong.providers.connection import connect  # noqa: PLC0415

    if wish in host.connections:
        return host.connections[wish]
    settings, main = host.settings, host.main() or _connect_main(host)
    made: Connection | None
    if wish.model or wish.base_url:
        name = _full_name(wish.model, wish.provider, main)
        where, key = wish.base_url or None, wish.api_key or None
        made = connect(name, settings, base_url=where, api_key=key, timeout=wish.timeout or 600.0)
    else:
        made = auxiliary_connection(settings, main) or main
    if made is None:
        raise PluginError(
            "a plugin asked for a model, and none is set up; name one with "
            "`everlong config set auxiliary.compression.model PROVIDER:MODEL`, or set agent.model"
        )
    if made is not host.main():  # the main one may change
        host.connections[wish] = made
    return made


def _connect_main(host: Host) -> Connection | None:
    from everlong.providers.connection import connect  # noqa: PLC0415 - as above

    chosen = host.settings.agent.model
    return connect(chosen, host.settings) if chosen else None


def _full_name(model: str, provider: str, main: Connection | None) -> str:
    """Return a full model name; one without a provider gets that of the main model."""
    from everlong.providers.endpoints import parse_model_name  # noqa: PLC0415 - as above

    if provider and provider not in {"auto", "main", "custom"}:
        return f"{provider}:{model}"
    try:
        return str(parse_model_name(model))
    except ConfigError:
        return model if main is None else f"{main.endpoint.name}:{model}"
