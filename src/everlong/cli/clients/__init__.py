"""Clients of the gateway: the configuration file of each, and the settings that lead its requests to the gateway.

`everlong.cli.setup` writes that configuration; `everlong.cli.wrap` runs a client with the same settings for one run.
"""

from everlong.cli.clients.client import Client, GatewayAddress, Setting
from everlong.cli.clients.known import CLIENTS, client_of_program

__all__ = ["CLIENTS", "Client", "GatewayAddress", "Setting", "client_of_program"]
