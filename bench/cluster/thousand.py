"""Up to a thousand gateways, computed from what one machine measures: what runs out first, and when.

Turns are stored on a PostgreSQL server of this machine: the CPU of the server, its disk and its write-ahead log for a
turn are measured. The rest is given: the rate of a gateway's core (`bench.throughput`), words of a turn, prices.

    python -m bench.cluster.thousand [--turns 3000] [--rate 60] [--words 2000]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import psycopg

from bench.store.server import postgres, server_cpu
from everlong.model import Message
from everlong.store import Store
from everlong.store.turns import FinishedTurn

_TURNS_EACH = 10
_GATEWAY_CONNECTIONS = 8
"""Connections of a gateway to PgBouncer."""
_SERVER_CORES, _SERVER_USE = 32, 0.6
"""Cores of a large server, and the share of them that may be busy at the peak."""
_LOG_MEGABYTES = 200
"""Megabytes of the write-ahead log that go to a standby in a second, over 10 Gbit and with fsync."""
_PEAK = 4
"""The peak's rate, as a multiple of the mean."""
_CORE_HOUR, _GIGABYTE_MONTH = 0.04, 0.12
"""Dollars: of a core for an hour, and of fast disk for a month, three copies not counted."""


@dataclass(frozen=True)
class Measured:
    """What one turn takes of the database."""

    cpu: float
    """Seconds."""
    disk: float
    """Bytes."""
    log: float
    """Bytes of the write-ahead log."""


def measure(turns: int, words: int) -> Measured:
    """Store turns on a server of its own."""
    text = "The quay and the tide are where the ferry leaves at nine. "
    with postgres(durable=True) as url, psycopg.connect(url, autocommit=True) as server, Store.open(url) as store:

        def now() -> tuple[float, int, int]:
            row = server.execute(
                "SELECT pg_database_size(current_database()), pg_current_wal_insert_lsn() - '0/0'"
            ).fetchone()
            assert row is not None  # noqa: S101 - it is one row
            return server_cpu(url), int(row[0]), int(row[1])

        before = now()
        for number in range(turns // _TURNS_EACH):
            said: list[Message] = [{"role": "user", "content": f"Conversation {number}"}]
            for turn in range(_TURNS_EACH):
                said.append({"role": "user", "content": (f"{number}, {turn}: " + text * 99)[: words // 2]})
                reply: Message = {"role": "assistant", "content": (f"To {number}, {turn}: " + text * 99)[: words // 2]}
                store.turns.add_finished(store.record(said), FinishedTurn(reply))
                said.append(reply)
        while store.searcher.index_pending():
            pass
        after = now()
    cpu, disk, log = ((new - old) / turns for new, old in zip(after, before, strict=True))
    return Measured(cpu, disk, log)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster.thousand", description=__doc__)
    parser.add_argument("--turns", type=int, default=3_000)
    parser.add_argument("--words", type=int, default=2_000, help="bytes of what is new in a turn")
    parser.add_argument("--rate", type=float, default=60.0, help="requests that a gateway's core relays in a second")
    asked = parser.parse_args()
    one = measure(asked.turns, asked.words)
    print(f"a turn of {asked.words:,} bytes takes {one.cpu * 1000:.1f} ms of the server's CPU,")
    print(f"  {one.disk:,.0f} bytes of its disk and {one.log:,.0f} of its write-ahead log")
    servers_rate = _SERVER_CORES * _SERVER_USE / one.cpu
    print(f"a server of {_SERVER_CORES} cores stores {servers_rate:,.0f} turns a second")
    print("gateways  turns/s  log MB/s  TB a month  connections  servers  runs out first        $ per million turns")
    for gateways in (10, 100, 1_000):
        peak = gateways * asked.rate
        log = peak * one.log / 1e6
        month = peak / _PEAK * 30 * 86_400
        needs = {
            "the server's CPU": peak / servers_rate,
            "its log": log / _LOG_MEGABYTES,
            "PgBouncer's clients": gateways * _GATEWAY_CONNECTIONS / 10_000,
        }
        first = max(needs, key=lambda name: needs[name])
        servers = -(-max(needs.values()) // 1)
        cores = gateways + servers * _SERVER_CORES * 2  # with a standby
        disk = month * one.disk * 2
        dollars = (cores * _CORE_HOUR * 720 + disk / 1e9 * _GIGABYTE_MONTH) / month * 1e6
        print(
            f"{gateways:>8,}{peak:>9,.0f}{log:>10,.1f}{month * one.disk / 1e12:>12,.1f}"
            f"{gateways * _GATEWAY_CONNECTIONS:>13,}{servers:>9,.0f}  {first:22}{dollars:>18.2f}"
        )


if __name__ == "__main__":
    main()
