"""``everlong auth``: keys go into the system's keyring and are never shown."""

from __future__ import annotations

import json

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail

from everlong.providers.endpoints import ENDPOINTS, find_key
from tests.cli.conftest import Run

SECRET = "key-of-nobody-at-all"  # noqa: S105 - made up


class InMemory(KeyringBackend):
    priority = 1

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    ring = InMemory()
    for endpoint in ENDPOINTS.values():
        for variable in endpoint.key_variables:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(keyring.core, "_keyring_backend", ring)
    return ring


def test_a_key_from_standard_input_is_stored_found_listed_and_removed(run: Run, ring: InMemory) -> None:
    ran = run("auth", "set", "anthropic", stdin=f"{SECRET}\n".encode())
    assert ran.code == 0
    assert ring.kept == {("everlong", "anthropic"): SECRET}
    assert find_key(ENDPOINTS["anthropic"], env={}) == SECRET
    listed = run("auth", "list", "--json").json
    assert listed["anthropic"]["key"] == "keyring"
    assert listed["openai"] == {"key": None, "needs_key": True, "variables": ["OPENAI_API_KEY"]}
    plain = run("auth", "list")
    assert "anthropic   keyring" in plain.out
    assert "openai      none (set OPENAI_API_KEY)" in plain.out
    assert "ollama      not needed" in plain.out
    assert SECRET not in ran.out + ran.err + plain.out + json.dumps(listed)
    assert run("auth", "remove", "anthropic").code == 0
    assert ring.kept == {}
    assert "there is no key for anthropic" in run("auth", "remove", "anthropic").err


def test_without_a_keyring_the_error_names_the_way_out(
    run: Run, ring: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    del ring
    monkeypatch.setattr(keyring.core, "_keyring_backend", fail.Keyring())  # type: ignore[no-untyped-call]
    ran = run("auth", "set", "openai")
    assert ran.code == 1
    assert "the system's keyring cannot be used (NoKeyringError); set OPENAI_API_KEY instead" in ran.err


def test_a_key_cannot_be_an_argument(run: Run, ring: InMemory) -> None:
    assert run("auth", "set", "openai", SECRET).code == 2
    assert ring.kept == {}
