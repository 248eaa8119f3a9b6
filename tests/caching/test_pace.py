"""How long a prefix is held goes by the pauses of a session, and by those of others before it had any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from bench.caching.sessions import Shape, make_session

from everlong.caching import PromptCache
from everlong.caching.prompt_cache import PauseLengths, SessionPace
from everlong.caching.rules import model_rules
from everlong.caching.simulation import CacheSimulator
from everlong.config import PromptCachingSettings
from everlong.gateway.cache_markers import CacheMarkers
from tests.examples import few
from tests.gateway.bodies import draft, line

MODEL = "claude-sonnet-4-5"
RULES = model_rules(MODEL)
MINUTE = 60.0


def paced(gaps: Sequence[float], shared: PauseLengths | None = None) -> SessionPace:
    """A session whose requests come with these gaps, in minutes."""
    pace, now = SessionPace(shared=shared), 0.0
    pace.note(now, None)
    for gap in gaps:
        now += gap * MINUTE
        pace.note(now, None)
    return pace


@pytest.mark.parametrize(
    ("gaps", "pays"),
    [
        ([], False),
        ([1, 2, 4.9], False),
        ([10], True),  # 1.15 for the pause against 0.75 for the hour
        ([10, 70], False),  # one pause for two writes: 1.15 against 1.5
        ([10, 10, 70], True),  # two: 2.3 against 1.5
        ([70, 70, 70], False),
    ],
)
def test_a_session_pays_for_an_hour_where_its_pauses_earn_it_back(gaps: list[float], pays: bool) -> None:
    assert paced(gaps).pays_for_hour(RULES) is pays


def test_a_new_session_goes_by_the_others_until_it_has_had_a_pause_itself() -> None:
    shared = PauseLengths()
    for _ in range(2):
        paced([10, 10], shared)
    assert not paced([], shared).pays_for_hour(RULES) or shared.spells >= 3
    assert (shared.pauses, shared.spells) == (4, 3)
    assert paced([], shared).pays_for_hour(RULES)
    assert not paced([90], shared).pays_for_hour(RULES)
    assert paced([1, 1], PauseLengths(0, 50)).pays_for_hour(RULES) is False
    assert paced([1, 20], PauseLengths(0, 50)).pays_for_hour(RULES) is True


def cost(shape: Shape, seed: int, pauses: PauseLengths | None = None, **settings: Any) -> float:
    simulator = CacheSimulator(MODEL, "anthropic")
    cache = PromptCache(MODEL, "anthropic", settings=settings, clock=lambda: 0.0, pauses=pauses)
    for call in make_session(shape, seed):
        simulator.send(cache.apply(call.body, call.at), call.at)
    return simulator.totals.cost


@pytest.mark.parametrize("pause_share", few([0.0, 0.4, 0.02, 0.1], 2))
@pytest.mark.parametrize("pause", [(360.0, 2_400.0), (4_000.0, 9_000.0)], ids=["within the hour", "beyond it"])
def test_auto_costs_about_what_the_better_of_the_two_costs(pause_share: float, pause: tuple[float, float]) -> None:
    shape = Shape(calls=60, pause_share=pause_share, pause=pause)
    sums = dict.fromkeys(("5m", "1h", "auto"), 0.0)
    shared, together = PauseLengths(), 0.0
    for seed in range(6):
        for ttl in sums:
            sums[ttl] += cost(shape, seed, prefix_ttl=ttl)
        together += cost(shape, seed, shared, prefix_ttl="auto")
    best = min(sums["5m"], sums["1h"])
    assert sums["auto"] <= 1.03 * best
    assert together <= 1.02 * best
    if not pause_share:
        assert sums["auto"] == sums["5m"] < sums["1h"]
    if pause_share == 0.4 and pause[1] < 3_600:
        assert together < sums["auto"] < 0.85 * sums["5m"]


def test_the_gateway_learns_from_all_conversations_of_a_tenant() -> None:
    now = 0.0
    marking = CacheMarkers(PromptCachingSettings(prefix_ttl="auto"), clock=lambda: now)
    words = "The tide gauge was read again. " * 400

    def asked(at: Any, text: str, tenant: str) -> bool:
        body = f'{{"model":"{MODEL}","system":"{words}","messages":[{{"role":"user","content":"{text}"}}]}}'
        return b'"1h"' in marking.marked(at, draft(body.encode()), MODEL, "anthropic", tenant)

    for number in range(4):
        known = line()
        asked(known, f"first {number}", "ada")
        now += 900.0
        assert asked(known, f"second {number}", "ada")
    assert asked(line(), "a new conversation", "ada")
    assert not asked(line(), "a new conversation", "bob")
