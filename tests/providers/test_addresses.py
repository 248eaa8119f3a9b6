"""A conversation and its key go to the address that the user named, and nothing else of the user's does."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from everlong.errors import ConfigError, RequestRefused
from everlong.model import Message
from everlong.providers import connect
from everlong.testing import ModelServer
from everlong.testing.server.exchange import Refusal
from tests.providers.conftest import APIS, Connect
from tests.testing_server.conftest import Serve

HELLO: Message = {"role": "user", "content": "Hello"}
KEY_OF_ANOTHER = "the-key-of-ada"
both_apis = pytest.mark.parametrize("api", APIS)


@both_apis
def test_the_environments_headers_go_to_no_address_that_the_user_named_for_something_else(
    serve: Serve, connected: Connect, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, f"x-everlong-key: {KEY_OF_ANOTHER}\nAuthorization: Bearer {KEY_OF_ANOTHER}")
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_AUTH_TOKEN", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, KEY_OF_ANOTHER)
    server = serve("Hi")
    connected(api, server).complete([HELLO])
    assert KEY_OF_ANOTHER not in str(server.requests[0].headers)


class Moved(ModelServer):
    """A server that sends its clients elsewhere."""

    where = ""

    def check_body(self, api: Any, body: Any, headers: Mapping[str, str], *, counting: bool = False) -> None:  # noqa: ARG002 - the base class's
        """Send the client on."""
        raise Refusal("moved", status=307, headers={"location": self.where})


@both_apis
def test_a_redirect_takes_no_conversation_elsewhere(serve: Serve, connected: Connect, api: str) -> None:
    elsewhere = serve("Hi")
    with Moved("Hi") as server:
        server.where = f"{elsewhere.url}/v1/messages"
        with pytest.raises(RequestRefused, match="moved"):
            connected(api, server).complete([HELLO])
    assert elsewhere.requests == []


@both_apis
def test_no_proxy_hears_what_stays_on_this_machine(
    serve: Serve, connected: Connect, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, server = serve("Hi"), serve("Hi")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.setenv("all_proxy", proxy.url)
    assert connected(api, server).complete([HELLO]).text == "Hi"
    assert proxy.requests == []


def test_a_clients_package_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match=r"needs the package openai; install it with"):
        connect("some-model", base_url="http://127.0.0.1:9/v1", api_key="made-up")
