"""Does the engine ``lcm`` recover when its model was away? Dead for 1,000 turns, then back: no summary stays degraded.

    python -m bench.lossless.outage [--dead 1000] [--alive 400]

While the model is away, summaries are made of the conversation's own lines, and every message stays in reach. When it
is back, each turn has one of them written anew.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.lossless.scale import FullBudget, turns
from bench.measure import verdict
from everlong.context import SummaryRequest
from everlong.errors import SummarizerError
from everlong.lossless import LosslessEngine
from everlong.store.opening import open_database
from everlong.store.store import Store
from everlong.store.summaries import StoredGraph

SECONDS_PER_TURN = 20.0


class Outage(FullBudget):
    """A summarizer that fails while its model is away."""

    is_away = True

    def summarize(self, request: SummaryRequest) -> str:
        """Return a summary, or raise while the model is away."""
        if self.is_away:
            raise SummarizerError("the model is away")
        return super().summarize(request)


def play(dead: int, alive: int, window: int, folder: Path) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """Play both parts; return the summaries by state after each, and the problems of the store."""
    now = [0.0]
    stub = Outage()
    with Store(open_database(folder / "outage.db", waits_for_disk=False)) as store:
        at = store.record([{"role": "system", "content": "You keep the harbour's books."}], conversation="outage")
        place = [at]
        graph = StoredGraph(store, lambda: place[0])
        engine = LosslessEngine(window, summarizer=stub, model="claude-sonnet-5", clock=lambda: now[0], graph=graph)
        tokens, said = 0, turns()
        after: list[dict[str, int]] = []
        for count in (dead, alive):
            for _ in range(count):
                now[0] += SECONDS_PER_TURN
                turn = next(said)
                place[0] = store.append(place[0], turn)
                tokens += sum(engine.counter.counts(turn))
                engine.update_from_response({"prompt_tokens": tokens, "total_tokens": tokens})
                if engine.should_compress():
                    tokens = engine.estimate_tokens(store.compact(place[0], engine).messages)
                else:
                    engine.work_ahead()
            after.append(graph.count())
            stub.is_away = False
        return after[0], after[1], store.verify().problems


def main(arguments: list[str] | None = None) -> int:
    """Play and tell; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dead", type=int, default=1_000, help="turns without the model")
    parser.add_argument("--alive", type=int, default=400, help="turns after it is back")
    parser.add_argument("--window", type=int, default=32_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        away, back, problems = play(options.dead, options.alive, options.window, Path(folder))
    left = back.get("degraded", 0)
    print(f"after {options.dead:,} turns without a model: {away}")
    print(f"after {options.alive:,} turns with it: {back}; degraded {left} {verdict(left, 0)}")
    print(f"problems of the store: {len(problems)} {verdict(len(problems), 0)}")
    return 0 if not left and not problems and away.get("degraded", 0) else 1


if __name__ == "__main__":
    sys.exit(main())
