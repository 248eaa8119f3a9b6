"""Nobody but the reader gets a page, nothing in a page runs, and nothing changes without a form of ours."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest

from everlong.errors import NotStored
from everlong.inspector.handlers import Reader
from everlong.inspector.rendering import render_markdown
from everlong.inspector.security import PROOF_HEADER, TENANT_HEADER, Watch
from everlong.store import Store
from tests.examples import IS_THOROUGH
from tests.inspector.conftest import Site, Tags, run_site
from tests.inspector.making import PAYLOADS, Ferry, make_ferry, make_hostile

TABS = ("", "/timeline", "/transcript", "/compactions", "/compactions/1", "/tree")
TRIED = PAYLOADS if IS_THOROUGH else PAYLOADS[::3]
SAFE_HREF = re.compile(r"(/inspector|#|\?|https?://|mailto:)")


def pages_of(ferry: Ferry, store: Store) -> list[str]:
    node = store.conversations.node_at(ferry.ident, 2)
    assert node is not None
    return [
        "/inspector/",
        "/inspector/search?q=harmless",
        "/inspector/cost?by=session&age=all",
        "/inspector/cost?by=model&age=all",
        f"/inspector/m/{node.hex()}",
        *(ferry.link + tab for tab in TABS),
    ]


def check_harmless(text: str) -> None:
    """Nothing in a page can run, load from elsewhere or send anything away."""
    for tag, attributes in Tags(text).tags:
        assert tag not in {"iframe", "object", "embed", "base", "style", "textarea"}, tag
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        if tag == "script":
            assert (attributes.get("src") or "").startswith("/inspector/static/")
        if tag == "meta":
            assert "http-equiv" not in attributes
        if tag == "img":
            assert (attributes.get("src") or "").startswith("data:image/")
        if tag == "form":
            assert (attributes.get("action") or "/inspector/").startswith("/inspector/")
        for name in ("href", "src", "action", "formaction", "hx-get"):
            value = attributes.get(name)
            assert value is None or SAFE_HREF.match(value) or value.startswith("data:image/"), (tag, name, value)
    assert "49{%" not in text  # no template of theirs was filled in


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, list[Ferry]]]:
    """An inspector over a store with a conversation for each payload."""
    with Store.open(tmp_path_factory.mktemp("hostile") / "store.db") as store:
        made = [make_hostile(store, payload) for payload in TRIED]
        for site in run_site(store, Watch()):
            yield site, made


@pytest.mark.parametrize("number", range(len(TRIED)))
def test_no_payload_in_any_field_does_harm_on_any_page(hostile: tuple[Site, list[Ferry]], number: int) -> None:
    site, made = hostile
    general = pages_of(made[number], site.store)[:4] if number else []
    for path in pages_of(made[number], site.store):
        if path in general:  # the same for all of them
            continue
        got = site.get(path)
        assert got.status == 200, (path, got.words[:300])
        check_harmless(got.text)
        assert "\u202e" not in got.text
        assert "\x1b" not in got.text


@pytest.mark.parametrize("payload", PAYLOADS)
def test_markdown_is_harmless(payload: str) -> None:
    for text in (payload, f"# {payload}", f"- {payload}\n\n> {payload}", f"| a |\n|---|\n| {payload} |"):
        check_harmless(str(render_markdown(text)))


@pytest.mark.usefixtures("ferry")
def test_what_an_address_says_does_no_harm(site: Site) -> None:
    for payload in TRIED:
        said = quote(payload.replace("\x00", ""))
        for path in ("search?q=", "search?q=x&session=", "?client=", "cost?by=", "c/", "m/"):
            check_harmless(site.get(f"/inspector/{path}{said}").text)


def test_every_answer_has_a_strict_policy(site: Site, store: Store, ferry: Ferry) -> None:
    paths = [
        *pages_of(ferry, store),
        "/",
        "/inspector/nothing",
        "/inspector/static/inspector.js",
        f"{ferry.link}/export/markdown",
    ]
    for path in paths:
        policy = site.get(path).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, path
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert site.get(path).headers["X-Content-Type-Options"] == "nosniff"


def test_pages_need_no_inline_script_or_style(site: Site, store: Store, ferry: Ferry) -> None:
    for path in pages_of(ferry, store):
        text = site.get(path).text
        check_harmless(text)
        assert "<style" not in text
        assert '"includeIndicatorStyles": false' in text
        assert '"allowEval": false' in text


@pytest.mark.usefixtures("ferry")
def test_other_host_names_get_nothing(site: Site) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[", "10.0.0.7"):
        got = site.ask("GET", "/inspector/", headers={"Host": host})
        assert got.status in {400, 403}
        assert "Harbour" not in got.text


FOREIGN: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
]


def test_pages_of_other_sites_get_nothing(site: Site) -> None:
    for headers in FOREIGN:
        assert site.ask("GET", "/inspector/", headers=headers).status == 403


def test_undo_brings_back_what_was_sent_before(site: Site, store: Store, ferry: Ferry) -> None:
    before = store.context(ferry.at)
    page = site.get(f"{ferry.link}/compactions/2")
    compaction = re.search(r'name="compaction" value="(\d+)"', page.text)
    assert compaction is not None
    form = {"token": page.token(f"{ferry.link}/undo"), "compaction": compaction[1]}
    got = site.post(f"{ferry.link}/undo", form)
    assert (got.status, got.headers["Location"]) == (303, f"{ferry.link}/compactions?result=undone")
    assert len(store.context(ferry.at)) > len(before)
    assert "in force" in site.get(f"{ferry.link}/compactions/1").words
    # The same form once more undoes nothing: another compaction is in force now.
    after = store.context(ferry.at)
    assert site.post(f"{ferry.link}/undo", form).headers["Location"].endswith("result=kept")
    assert store.context(ferry.at) == after


def test_actions_need_the_token_of_their_form(site: Site, store: Store, ferry: Ferry) -> None:
    before = store.context(ferry.at)
    link = make_ferry(store).link
    other = site.get(f"{link}/compactions/2").token(f"{link}/undo")
    compaction = str(store.conversations.compactions(ferry.ident)[-1].id)
    for token in ("", "wrong", other, "\u00e9"):
        assert site.post(f"{ferry.link}/undo", {"token": token, "compaction": compaction}).status == 403
    assert store.context(ferry.at) == before


def test_actions_of_other_pages_are_refused(site: Site, ferry: Ferry) -> None:
    page = site.get(f"{ferry.link}/compactions/2")
    form = {"token": page.token(f"{ferry.link}/undo"), "compaction": "2"}
    for headers in FOREIGN:
        assert site.post(f"{ferry.link}/undo", form, **headers).status == 403


def test_secrets_are_taken_out_on_every_page(site: Site, store: Store) -> None:
    secret = "sk-ant-api03-" + "Zk3" * 30
    ferry = make_hostile(store, f"the key {secret} opens it")
    for path in pages_of(ferry, store):
        assert secret not in site.get(path).text, path


@pytest.fixture
def behind(store: Store) -> Iterator[Site]:
    """An inspector that only its gateway may ask."""
    yield from run_site(store, Watch(proof="the gateway's secret"))


def test_behind_a_gateway_only_the_gateway_is_answered(behind: Site, store: Store) -> None:
    make_ferry(store)
    make_ferry(Store(store.database, "ada"), title="Ada's own")
    assert behind.get("/inspector/").status == 403
    assert behind.get("/inspector/", x_everlong_inspector="wrong", x_everlong_tenant="ada").status == 403
    assert behind.get("/inspector/", x_everlong_inspector="the gateway's secret").status == 403
    page = behind.get("/inspector/", x_everlong_inspector="the gateway's secret", x_everlong_tenant="ada")
    assert page.status == 200
    assert "Ada&#39;s own" in page.text
    assert "Harbour ferries" not in page.text


def test_a_tenant_reads_nothing_of_another(behind: Site, store: Store) -> None:
    theirs = make_ferry(store)
    node = store.conversations.node_at(theirs.ident, 1)
    assert node is not None
    headers = {"x_everlong_inspector": "the gateway's secret", "x_everlong_tenant": "ada"}
    for path in (theirs.link, f"{theirs.link}/transcript", f"{theirs.link}/export/json", f"/inspector/m/{node.hex()}"):
        assert behind.get(path, **headers).status == 404
    assert "48213" not in behind.get("/inspector/search?q=48213", **headers).text.replace('value="48213"', "")


class Slow(Reader):
    """A store in which what belongs to one tenant takes long to find."""

    is_let_go = threading.Event()

    def store(self, tenant: str) -> Store:
        made = super().store(tenant)
        if tenant == "ada":
            made.conversations = _Finding()  # type: ignore[assignment]
        return made


class _Finding:
    def get(self, ident: str) -> Any:
        Slow.is_let_go.wait()
        raise NotStored(ident)


@pytest.mark.spec("12.6")
def test_pages_that_take_long_for_one_key_keep_no_other_waiting(store: Store) -> None:
    with ThreadPoolExecutor(8) as clients, contextmanager(run_site)(store, Watch(proof="made-up"), None, Slow) as site:

        def ask(tenant: str, path: str) -> int:
            return site.get(path, **{PROOF_HEADER: "made-up", TENANT_HEADER: tenant}).status

        waiting = [clients.submit(ask, "ada", "/inspector/c/any") for _ in range(8)]
        try:
            assert ask("bob", "/inspector/") == 200
            assert not any(one.done() for one in waiting)
        finally:
            Slow.is_let_go.set()
        assert [one.result() for one in waiting] == [404] * 8
