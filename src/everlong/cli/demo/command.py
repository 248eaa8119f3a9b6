"""``everlong demo``: plays a long agent session in a small window, without a key and without a network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.inspect_web import check_installed, serve_inspector
from everlong.cli.output import print_values, working

if TYPE_CHECKING:
    from collections.abc import Sequence

    from everlong.cli.demo.playback import Answer, Played

__all__ = ["demo_command"]


_WINDOW = 32_768
"""The window in tokens: small, so that the session fills it several times."""


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--web", is_flag=True, help="Then open the inspector on the played session in the browser.")
def demo_command(as_json: bool, web: bool) -> None:
    """Play a long agent session in a small window, and show what three ways to deal with that make of it."""
    from everlong.cli.demo.contenders import MODEL, Cutting, Everlong, HeadAndTail  # noqa: PLC0415 - keeps `--help` quick
    from everlong.cli.demo.playback import PRICES, answers_of, play  # noqa: PLC0415 - as above
    from everlong.cli.demo.screens import DemoScreens  # noqa: PLC0415 - as above
    from everlong.cli.demo.session import load_session  # noqa: PLC0415 - as above
    from everlong.store import open_store  # noqa: PLC0415 - as above

    if web:
        check_installed()
    session, facts = load_session()
    with (
        tempfile.TemporaryDirectory(prefix="everlong-demo-") as folder,
        open_store(Path(folder) / "demo.db", waits_for_disk=False) as store,
    ):
        messages = sum(message["role"] != "system" for message in session)  # as everything else counts them
        screens = None if as_json else DemoScreens(messages, _WINDOW)
        if screens is not None:
            screens.question([(one.name, one.about) for one in (Cutting, HeadAndTail, Everlong)])
        with working("playing the session"):
            played = play(session, _WINDOW, store)
        store.searcher.index_pending()
        answers = [
            answers_of(track, facts, store if track.contender is played.everlong else None) for track in played.tracks
        ]
        if screens is None:
            print_values(_figures(played, answers))
        else:
            screens.results(played, answers)
        if web:
            models = {MODEL: {"context_length": _WINDOW, **PRICES}}
            serve_inspector(store, "everlong demo", port=0, opens_browser=True, models=models)


def _figures(played: Played, answers: Sequence[Sequence[Answer]]) -> dict[str, Any]:
    return {
        "window": played.window,
        "threshold": played.everlong.engine.threshold_tokens,
        "requests": len(played.raw_sizes),
        "largest_without": max(played.raw_sizes),
        "ways": [
            {
                "name": track.contender.name,
                "largest_request": max(track.sizes),
                "tokens_from_cache": track.read,
                "tokens_fresh": track.written,
                "dollars": round(track.dollars, 4),
                "facts": {one.fact.id: one.source for one in known},
            }
            for track, known in zip(played.tracks, answers, strict=True)
        ],
        "compactions": [{"message": index, **report.to_dict()} for index, report in played.everlong.reports],
    }
