"""Every adapter with the real package: far past the window, recall, an engine's tools, a window smaller than said."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong import ContextCompressor, LosslessEngine, Store
from everlong.testing import ModelServer
from tests.examples import length
from tests.frameworks.drivers import DRIVERS, Setting
from tests.integrations.desk import FACT, FIRST, QUESTION, cache_share, clerk, errand, figures, looking

pytestmark = pytest.mark.filterwarnings("default")  # the frameworks warn about each other

WINDOW = 8_000
TURNS = length(200, 26)


@pytest.mark.smoke
@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_many_turns_go_through_a_window_that_holds_a_few_of_them(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[ContextCompressor] = []

    def make() -> ContextCompressor:
        made.append(ContextCompressor(WINDOW))
        return made[-1]

    with ModelServer(clerk, window=WINDOW, dialect="openai") as server:
        with DRIVERS[name](Setting(server, make)) as say:
            say(FIRST)
            for number in range(TURNS):
                assert say(errand(number)) == f"The total: {number * 1000 + 17}."
            assert say(QUESTION) == f"The code is {FACT}."
        assert server.rejections == []
        assert {record.status for record in server.requests} == {200}
        assert sum(engine.compression_count for engine in made) >= 1
        assert cache_share(server) > 0.8, "prompt caches keep hitting between two compactions"
        with capsys.disabled():
            print(figures(name, TURNS, server))  # noqa: T201 - wanted


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_a_window_that_is_smaller_than_said_is_survived(name: str) -> None:
    with ModelServer(clerk, window=WINDOW, dialect="openai") as server:
        with DRIVERS[name](Setting(server, lambda: ContextCompressor(4 * WINDOW))) as say:
            say(FIRST)
            for number in range(26):
                assert say(errand(number)) == f"The total: {number * 1000 + 17}."
        assert sum(record.status != 200 for record in server.requests) == 1, "the refusal told the real window"


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_the_model_looks_up_what_was_compacted_away(name: str, tmp_path: Path) -> None:
    script = looking("everlong_recall")
    with ModelServer(script, window=WINDOW, dialect="openai") as server, Store.open(tmp_path / "talk.db") as store:
        setting = Setting(server, lambda: ContextCompressor(WINDOW), store, recall=True)
        with DRIVERS[name](setting) as say:
            say(FIRST)
            for number in range(20):
                say(errand(number))
            assert say(QUESTION) == f"Looked up: {FACT}."
        assert server.rejections == []
        assert store.compactions()


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_the_tools_of_an_engine_are_offered_and_answered(name: str, tmp_path: Path) -> None:
    script = looking("lcm_grep")
    with ModelServer(script, window=WINDOW, dialect="openai") as server, Store.open(tmp_path / "talk.db") as store:
        with DRIVERS[name](Setting(server, lambda: LosslessEngine(WINDOW), store)) as say:
            say(FIRST)
            for number in range(20):
                say(errand(number))
            assert say(QUESTION) == f"Looked up: {FACT}."
        assert server.rejections == []
