"""Through a company's network: proxies, hosts that are reached directly, and certificates of its own."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import ssl
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from yarl import URL

from everlong.errors import ConfigError
from everlong.gateway.upstream import Network
from tests.gateway.running import run_gateway
from tests.gateway.upstream import Upstream
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Proxy:
    """A proxy that knows ``upstream.test`` and no other host, and keeps what it was asked."""

    plain: int
    """The port on loopback that stands for ``upstream.test``."""
    secure: int = 0
    """The port that stands for it behind TLS."""
    login: str = ""
    asked: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.asked.append(first)
        wanted = "Basic " + base64.b64encode(self.login.encode()).decode()
        given = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if self.login and given.get("proxy-authorization") != wanted:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            await _close(writer)
            return
        method, target, version = first.split(" ")
        host = target.rpartition(":")[0] if method == "CONNECT" else urlsplit(target).hostname or ""
        assert host == "upstream.test"
        port = self.secure if method == "CONNECT" else self.plain
        there, back = await asyncio.open_connection("127.0.0.1", port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = urlsplit(target)._replace(scheme="", netloc="").geturl()
            back.write("\r\n".join([f"{method} {path} {version}", *lines]).encode("latin-1"))
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))


@dataclass
class Company:
    """The network: its proxy, and the file with the certificate that its servers are signed with."""

    proxy: Proxy
    ca_file: Path


@contextmanager
def company(folder: Path, upstream: int, login: str = "") -> Iterator[Company]:
    """Run a network in which ``upstream.test`` is a server on loopback: plain by http, behind TLS by https.

    Args:
        folder: where certificates are put.
        upstream: the port of the server.
        login: what the proxy wants to be told, as ``user:password``.
    """
    made = Company(Proxy(upstream, login=login), folder / "ca.pem")
    context = _certified(folder, made.ca_file)
    loop, ready, leaving = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def front(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))

    async def run() -> None:
        secure = await asyncio.start_server(front, "127.0.0.1", 0, ssl=context)
        made.proxy.secure = secure.sockets[0].getsockname()[1]
        proxy = await asyncio.start_server(made.proxy.serve, "127.0.0.1", 0)
        made.proxy.port = proxy.sockets[0].getsockname()[1]
        ready.set()
        await leaving.wait()
        for server in (secure, proxy):
            server.close()
        served = asyncio.all_tasks() - {asyncio.current_task()}
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    ready.wait(PATIENCE)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(leaving.set)
        thread.join(PATIENCE)
        loop.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.CancelledError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.close()
        await writer.wait_closed()


def _certified(folder: Path, ca_file: Path) -> ssl.SSLContext:
    """Make a certificate for the upstream, and write down that of those who signed it."""
    key, ca_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root, name = _name("A company"), _name("upstream.test")
    now = datetime.datetime.now(tz=datetime.UTC)
    days = (now - datetime.timedelta(days=1), now + datetime.timedelta(days=2))
    ca = (
        _builder(root, root, ca_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .add_extension(_SIGNS, critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    leaf = (
        _builder(name, root, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("upstream.test")]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    own = folder / "upstream.pem"
    own.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + leaf.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(own)
    return context


_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: tuple[datetime.datetime, datetime.datetime],
) -> x509.CertificateBuilder:
    made = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key)
    return made.serial_number(x509.random_serial_number()).not_valid_before(days[0]).not_valid_after(days[1])


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
