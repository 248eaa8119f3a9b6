"""No turn is taken for one of another conversation, however alike they are and whoever sends them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from everlong.store import Store
from everlong.testing import ModelServer
from tests.examples import length
from tests.gateway.running import run_gateway
from tests.gateway.world import World, answer_to, problems_in, slowly

CONVERSATIONS = length(40, 12)
STEPS = 4


def tenants() -> list[str]:
    return [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("ada", "ben", "cleo")]


@pytest.mark.parametrize("seed", range(1, 1 + length(2, 1)))
def test_every_turn_is_where_it_belongs_after_a_restart_too(seed: int, tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    world = World(seed, tenants(), CONVERSATIONS // 2)
    with ModelServer(answer_to, faults=slowly) as model:
        for _ in range(2):
            with run_gateway(model.url, path) as running:
                world.go_on(STEPS, lambda: [running.port])
        assert not model.rejections
        with Store.open(path) as opened:
            assert problems_in(world, lambda tenant: Store(opened.database, tenant)) == []


@pytest.mark.soak
def test_every_turn_is_where_it_belongs_with_two_replicas_of_which_one_is_restarted(postgres_url: str) -> None:
    world = World(3, tenants(), CONVERSATIONS // 2)
    with ModelServer(answer_to, faults=slowly) as model, run_gateway(model.url, postgres_url) as lasting:
        for _ in range(2):
            with run_gateway(model.url, postgres_url) as running:
                world.go_on(STEPS, lambda: [lasting.port, running.port])
        assert not model.rejections
        assert problems_in(world, lasting.store) == []


@pytest.mark.soak
def test_every_turn_is_where_it_belongs_in_conversations_that_are_compacted(tmp_path: Path) -> None:
    path, window = str(tmp_path / "store.db"), 8_000
    settings = {"models": {name: {"context_length": window} for name in ("claude-sonnet-5", "gpt-test")}}
    world = World(4, tenants(), CONVERSATIONS // 4, padding=" and so on" * 250)
    with ModelServer(answer_to, window=window) as model:
        for _ in range(2):
            with run_gateway(model.url, path, settings) as running:
                world.go_on(2 * STEPS, lambda: [running.port])
        assert not model.rejections
        with Store.open(path) as opened:
            stores = [Store(opened.database, tenant) for tenant in world.tenants]
            assert sum(len(store.compactions()) for store in stores) > 4
            assert problems_in(world, lambda tenant: Store(opened.database, tenant)) == []
