"""Providers of one endpoint share a client, and the last of them closes it."""

from __future__ import annotations

import threading

from everlong.providers.client import SharedClients
from tests.waiting import PATIENCE


class Client:
    """A client that counts how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_one_endpoint_has_one_client_until_its_last_holder_has_gone() -> None:
    clients = SharedClients()
    first = clients.take("here", Client)
    assert clients.take("here", Client) is first
    assert clients.take("there", Client) is not first
    clients.give_back("here")
    assert first.closed == 0
    clients.give_back("here")
    assert first.closed == 1
    assert clients.take("here", Client) is not first


def test_a_client_is_given_back_while_another_is_made() -> None:
    """The garbage collector may find a provider that nobody closed at any moment."""
    clients = SharedClients()
    clients.take("there", Client)

    def make() -> Client:
        clients.give_back("there")
        return Client()

    taking = threading.Thread(target=clients.take, args=("here", make), daemon=True)
    taking.start()
    taking.join(PATIENCE)
    assert not taking.is_alive()
