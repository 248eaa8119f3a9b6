"""``everlong sessions search``: find what was said, anywhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from everlong.cli.screen import styled
from everlong.cli.sessions_common import command, counted, found, json_option, opened, put_json, say, when
from everlong.cli.sessions_index import index_what_is_pending

if TYPE_CHECKING:
    from everlong.store import Store
    from everlong.store.search import Hit, Page
    from everlong.store.search.snippets import Snippet

INDEX_SECONDS = 2.0
"""How long a search may first work on the index for what was stored since; what is left is looked through directly."""


@command("search", "each")
@click.argument("query", nargs=-1, required=True)
@click.option("--phrase", "mode", flag_value="phrase", help="The whole query, as whole words in a row.")
@click.option("--substring", "mode", flag_value="substring", help="The whole query, anywhere, also within words.")
@click.option("--regex", "mode", flag_value="regex", help="The query is a regular expression; (?i) ignores case.")
@click.option("--session", help="Only in this conversation.")
@click.option("--role", type=click.Choice(["user", "assistant", "tool", "summary"]), help="Only what this role said.")
@click.option("--tool", help="Only calls of this tool and its answers.")
@click.option(
    "--since", callback=when, metavar="WHEN", help="Said at or after this: 2026-01-31, or 7d for seven days ago."
)
@click.option("--before", callback=when, metavar="WHEN", help="Said before this.")
@click.option(
    "--by",
    type=click.Choice(["relevance", "time"]),
    default="relevance",
    show_default=True,
    help="The order; by time the newest comes first.",
)
@click.option("-n", "--limit", type=click.IntRange(1, 1_000), default=10, show_default=True, help="Hits on a page.")
@click.option("--page", type=click.IntRange(min=1), default=1, help="Which page to show, counted from 1.")
@click.option("--cursor", help="Go on where a page ended; it is in the JSON of that page.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.01),
    default=10.0,
    show_default=True,
    help="How long a search through texts may take.",
)
@json_option
def search(  # noqa: PLR0913, PLR0917 - one parameter per option
    query: tuple[str, ...],
    mode: str | None,
    session: str | None,
    role: str | None,
    tool: str | None,
    since: float | None,
    before: float | None,
    by: str,
    limit: int,
    page: int,
    cursor: str | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Find messages, tool calls, results and summaries about QUERY.

    Any of the words count, the best hits come first; "what must be there as it is" stands in double quotes.
    """
    with opened() as store:
        from everlong.store.search import Filters  # noqa: PLC0415 - keeps `everlong --help` quick

        index_what_is_pending(store, INDEX_SECONDS)
        filters = Filters(
            session=found(store, session).id if session is not None else None,
            role=role,
            tool=tool,
            since=since,
            before=before,
        )
        options = {"mode": mode or "auto", "order": by, "filters": filters, "limit": limit, "seconds": seconds}
        shown = _page(store, " ".join(query), options, page, cursor)
    if as_json:
        hits = [hit.to_dict() for hit in shown.hits]
        put_json({"hits": hits, "cursor": shown.cursor, "is_partial": shown.is_partial})
        return
    _print(shown, limit * (page - 1), page)


def _page(store: Store, text: str, options: dict[str, Any], number: int, cursor: str | None) -> Page:
    """A page by its number, counted from where the cursor is."""
    from everlong.errors import QueryError  # noqa: PLC0415 - keeps `everlong --help` quick

    shown = store.search(text, cursor=cursor, **options)
    for _ in range(number - 1):
        if shown.cursor is None:
            raise QueryError(f"there is no page {number}; the search has fewer hits")
        shown = store.search(text, cursor=shown.cursor, **options)
    return shown


def _print(shown: Page, before: int, page: int) -> None:
    for number, hit in enumerate(shown.hits, start=before + 1):
        click.echo("\n".join(hit_lines(number, hit)))
    if not shown.hits:
        say("nothing was found" + ("; time ran out, so --seconds 60 may find more" if shown.is_partial else ""))
    elif shown.is_partial:
        say("time ran out; --seconds 60 looks further")
    if shown.cursor is not None and shown.hits:
        say(f"{counted(len(shown.hits), 'hit')} shown; --page {page + 1} shows more")


def hit_lines(number: int, hit: Hit) -> list[str]:
    """A hit in two lines for people."""
    from everlong.store.transcripts import one_line  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.transcripts.facts import moment  # noqa: PLC0415 - as above

    where = f"{hit.session}:{hit.turn}" if hit.session else "(in no conversation)"
    title = f"  {one_line(hit.title)}" if hit.title else ""
    speaker = f" ({one_line(hit.speaker)})" if hit.speaker else ""
    beside = "" if hit.is_match else "  (next to a match)"
    if hit.status:
        beside += f"  ({hit.status})"
    head = f"{number:>3}  {moment(hit.at)[:16]}  {styled(one_line(hit.role), bold=True)}{speaker}  {where}{title}"
    return [head + beside, f"     {marked(hit.snippet)}"]


def marked(snippet: Snippet) -> str:
    """A snippet for the terminal, made harmless, with its matches in colour and in asterisks where there is none."""
    from everlong.store.transcripts import plain  # noqa: PLC0415 - keeps `everlong --help` quick

    in_colour = sys.stdout.isatty()
    pieces, end = [], 0
    for start, stop in snippet.marks:
        inside = plain(snippet.text[start:stop])
        shown = styled(inside, fg="yellow", bold=True) if in_colour else f"**{inside}**"
        pieces += [plain(snippet.text[end:start]), shown]
        end = stop
    return "".join([*pieces, plain(snippet.text[end:])]).replace("\n", " ")
