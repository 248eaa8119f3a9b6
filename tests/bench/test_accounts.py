"""``everlong usage`` tells what the server billed, on a session with caching, faults, pauses and compactions."""

from __future__ import annotations

from decimal import Decimal

from bench.agent import accounts


def test_the_program_tells_the_servers_own_bill_to_the_token() -> None:
    found = accounts.play(45, window=14_000, cache_ttl="1h")
    assert found.compactions >= 2
    assert found.failures > 0
    total = found.told["total"]
    assert found.differences == {}
    assert min(found.billed.values()) > 0
    assert Decimal(total["cost"]) == found.dollars
    assert total["calls"] == found.requests
    assert found.notices == []
    kinds = total["kinds"]
    assert {name for name, kind in kinds.items() if kind["calls"]} == {"conversation", "summary", "memory"}
    assert sum(Decimal(kind["cost"]) for kind in kinds.values()) == found.dollars
    compaction = total["compaction"]
    assert compaction["count"] >= found.compactions
    assert compaction["summaries_cost"] == kinds["summary"]["cost"]
    assert compaction["unsent_tokens"] > compaction["rewritten_tokens"] > 0
    assert Decimal(total["uncached_cost"]) > Decimal(total["cost"])
