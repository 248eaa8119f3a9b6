"""Every page in every state of the data: no name that was not filled in, no `None`, no `nan`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.resources import files
from string import Formatter

import pytest

from everlong.inspector.pages.compactions import compaction_rows
from everlong.inspector.rendering import LANGUAGES, choose_language, load_texts
from everlong.store import Store
from everlong.store.imports import Importer, ImportOrigin
from everlong.wire import read_transcript
from tests.context.builders import assistant, user
from tests.examples import few
from tests.inspector.conftest import Site
from tests.inspector.making import FIRST, make_ferry, make_long

UNFILLED = re.compile(r"\{\w*\}|\bNone\b|\bnan\b|\bNaN\b|\bundefined\b|\bTrue\b|\bFalse\b|\$-|\de\+\d")
"""What no reader may see; the words of the test's conversations have none of it."""
EMPTY = re.compile(r"<dd>\s*–|<b>\s*–|→ –|– →|: ·")
"""A dash, or nothing, in the place of a figure."""
MOST_PAGES = 120


def add_running(store: Store) -> None:
    ferry = make_ferry(store)
    store.turns.begin(ferry.at, model="demo", session=ferry.parts[-1])


def add_undone(store: Store) -> None:
    store.undo(make_ferry(store).at)


def add_failed(store: Store) -> None:
    ferry = make_ferry(store, model="")
    turn = store.turns.begin(ferry.at, model=None, session=ferry.parts[-1])
    store.turns.finish(turn.id, status="failed", error="overloaded")


def add_imported(store: Store) -> None:
    for conversation in read_transcript(json.dumps(FIRST).encode()).conversations:
        Importer(store).add(conversation, ImportOrigin("ferry.json", 1_760_000_000.0))


def add_one_message(store: Store) -> None:
    session = store.sessions.start(title="")
    store.sessions.attach(session.id, store.record([user("Hello")], conversation=session.id))


def add_nothing(store: Store) -> None:
    del store


STATES: dict[str, Callable[[Store], object]] = {
    "empty": add_nothing,
    "compacted, with a price": make_ferry,
    "failed": add_failed,
    "running": add_running,
    "undone": add_undone,
    "one message": add_one_message,
    "compacted, without a price": lambda store: make_ferry(store, model="demo"),
    "never compacted": lambda store: make_long(store, 40),
    "imported": add_imported,
}


@pytest.mark.parametrize("state", few([*STATES], 5))
def test_no_page_shows_a_value_that_is_missing(site: Site, state: str) -> None:
    STATES[state](site.store)
    waiting = [
        "/inspector/",
        "/inspector/c/nobody",
        "/inspector/cost",
        "/inspector/cost?by=session&age=all",
        "/inspector/search?q=port",
    ]
    seen: set[str] = set()
    while waiting and len(seen) < MOST_PAGES:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        got = site.get(path)
        if got.status in {302, 303}:
            waiting.append(got.headers["Location"].partition("#")[0])
            continue
        assert got.status == (404 if path.endswith("nobody") else 200), f"{path}: {got.words[:300]}"
        bare = re.sub(r"<script.*?</script>|<pre.*?</pre>", "", got.text, flags=re.DOTALL)
        found = UNFILLED.search(re.sub(r"<[^>]+>", " ", bare))
        assert found is None, f"{path} shows {found}"
        assert EMPTY.search(bare) is None, f"{path}: a dash, or nothing, in the place of a figure"
        links = re.findall(r'(?:href|hx-get)="(/inspector/(?!static|live)[^"#]*)', got.text)
        waiting += [link.replace("&amp;", "&") for link in links if "/export/" not in link]
    assert len(seen) > (3 if state == "empty" else 10)


def test_a_compaction_that_was_taken_back_is_marked(site: Site) -> None:
    ferry = make_ferry(site.store)
    site.store.undo(ferry.at)
    rows = compaction_rows(site.store, ferry.ident)
    assert [(row.is_in_force, row.is_undone) for row in rows] == [(True, False), (False, True)]
    assert "undone" in site.get(f"{ferry.link}/compactions/2").words


def test_live_is_said_only_while_a_request_waits_for_its_answer(site: Site) -> None:
    session = site.store.sessions.start(title="The pier")
    at = site.store.record([user("Which pier?")], conversation=session.id)
    site.store.sessions.attach(session.id, at)
    assert 'class="live"' not in site.get("/inspector/").text
    turn = site.store.turns.begin(at, session=session.id)
    assert 'class="live"' in site.get("/inspector/").text
    site.store.turns.finish(turn.id, assistant("The third."))
    assert 'class="live"' not in site.get("/inspector/").text


TEMPLATES = {one.name: one.read_text(encoding="utf-8") for one in (files("everlong.inspector") / "templates").iterdir()}


def test_a_text_is_there_in_every_language_with_the_same_names() -> None:
    for key, texts in load_texts().items():
        assert texts.keys() == LANGUAGES.keys(), key
        assert all(text.strip() for text in texts.values()), key
        names = [{name for _, name, _, _ in Formatter().parse(text) if name is not None} for text in texts.values()]
        assert all(one == names[0] for one in names), key


def test_templates_have_no_words_of_their_own() -> None:
    """Words between tags come from the catalogue; names of formats and of the program may stand."""
    for name, text in TEMPLATES.items():
        bare = re.sub(r"{#.*?#}|{%.*?%}|{{.*?}}|<[^>]*>|&\w+;", " ", text, flags=re.DOTALL)
        words = set(re.findall(r"[A-Za-z]{2,}", bare)) - {"everlong", "HTML", "Markdown", "JSON", "JSONL", "Enter"}
        assert not words, f"{name}: {words}"


@pytest.mark.parametrize(
    ("asked", "kept", "accepted", "language"),
    [
        ("zh", "en", "en", "zh"),
        (None, "zh", "en", "zh"),
        ("xx", "yy", "zh-TW,en;q=0.5", "zh"),
        (None, None, "fr,zh;q=0.7,en;q=0.3", "zh"),
        (None, None, "", "en"),
        (None, None, ";q=,;q=x,," * 50, "en"),
    ],
)
def test_the_language_of_a_reader(asked: str | None, kept: str | None, accepted: str, language: str) -> None:
    assert choose_language(asked, kept, accepted) == language
