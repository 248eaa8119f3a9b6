"""Through a company's network: proxies, hosts that are reached directly, and certificates of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from yarl import URL

from everlong.errors import ConfigError
from everlong.gateway.upstream import Network
from tests.gateway.proxies import Company, company
from tests.gateway.running import run_gateway
from tests.gateway.upstream import Upstream

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, "SSL_CERT_DIR", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def office(upstream: Upstream, tmp_path: Path) -> Iterator[Company]:
    with company(tmp_path, int(upstream.url.rpartition(":")[2])) as found:
        yield found


def ask(where: str, folder: Path) -> tuple[int, str]:
    """What a client gets from a gateway in front of an upstream."""
    with run_gateway(where, str(folder / "store.db")) as running, running.raw() as raw:
        answer = raw.ask(BODY)
        return answer.status, answer.body.decode()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"])
def test_an_upstream_by_https_is_asked_through_a_tunnel_that_only_it_can_read(
    variable: str, office: Company, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", office.proxy.url.removeprefix("http://"))  # also without its scheme
    monkeypatch.setenv(variable, str(office.ca_file))
    assert ask("https://upstream.test", tmp_path)[0] == 200
    assert office.proxy.asked == ["CONNECT upstream.test:443 HTTP/1.1"]
    assert upstream.last.header("host") == "upstream.test"
    assert upstream.last.body == BODY


def test_a_certificate_that_nobody_trusts_is_an_error_that_says_what_to_do(
    office: Company, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", office.proxy.url)
    status, said = ask("https://upstream.test", tmp_path)
    assert status == 502
    assert "the certificate of https://upstream.test is not trusted" in said
    assert "SSL_CERT_FILE" in said
    assert not upstream.requests


@pytest.mark.parametrize(
    ("entries", "address", "is_direct"),
    [
        ("", "https://api.example.com", False),
        ("*", "https://api.example.com", True),
        ("example.com", "https://api.example.com", True),
        (".example.com", "https://api.example.com", True),
        ("EXAMPLE.com", "https://Api.example.com", True),
        ("ample.com", "https://api.example.com", False),
        ("other.org, example.com", "https://example.com", True),
        ("example.com:8443", "https://example.com:8443", True),
        ("example.com:8443", "https://example.com", False),
        ("10.1.2.3", "http://10.1.2.3", True),
        ("10.1.2.3:80", "http://10.1.2.3:81", False),
        ("", "http://127.0.0.1:8080", True),
        ("", "http://localhost:8080", True),
        ("", "http://[::1]:8080", True),
    ],
)
def test_no_proxy_names_hosts_domains_and_ports(
    monkeypatch: pytest.MonkeyPatch, entries: str, address: str, is_direct: bool
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", entries)
    assert (Network().proxy_for(URL(address)) is None) is is_direct


@pytest.mark.parametrize("value", ["socks5://ada:secret@proxy.test:1080", "http://", "http://[half"])
def test_a_proxy_of_another_kind_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(ConfigError, match=r"HTTPS_PROXY has .* but a proxy must be") as refused:
        Network()
    assert "secret" not in str(refused.value)
