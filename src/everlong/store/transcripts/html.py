"""A conversation as one HTML page that needs nothing else: no script, no font, no picture from anywhere.

Every text is escaped, and the page tells the browser to load and run nothing, whatever a message says. Pictures are
shown only where the message carries their data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING

from everlong.store.transcripts.parts import (
    TranscriptPiece,
    broken_words,
    compaction_line,
    facts_of,
    moment,
    name_of,
    one_line,
    pieces_of,
    plain,
)

if TYPE_CHECKING:
    from everlong.store.conversations import CompactionMark, Conversation, ConversationLine

OPEN_UP_TO = 1_500
"""Longer calls, results and thoughts are folded."""

_ROLES = {"user", "assistant", "tool", "system", "developer"}

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --user: #2563eb; --assistant: #15803d; --tool: #a16207; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .9rem; }
dt { opacity: .7; } dd { margin: 0; overflow-wrap: anywhere; }
article { border-left: 4px solid var(--line); padding: .2rem 0 .2rem 1rem; margin: 1.2rem 0; }
article.user { border-color: var(--user); } article.assistant { border-color: var(--assistant); }
article.tool { border-color: var(--tool); }
header { font-size: .85rem; opacity: .75; } header b { text-transform: uppercase; letter-spacing: .04em; }
pre { font: .85rem/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0;
  padding: .6rem; background: #8881; border-radius: 4px; unicode-bidi: plaintext; }
pre.text { font: inherit; background: none; padding: 0; }
p.compaction { text-align: center; font-size: .85rem; opacity: .75; border-top: 1px dashed var(--line);
  border-bottom: 1px dashed var(--line); padding: .3rem; }
summary { cursor: pointer; font-size: .9rem; } img { max-width: 100%; }
"""


def page_head(title: str) -> Iterator[str]:
    """Return the beginning of the page."""
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    yield "style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'\">\n"
    yield '<meta name="referrer" content="no-referrer">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{_safe(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"


def page_foot() -> Iterator[str]:
    """Return the end of the page."""
    yield "</body>\n</html>\n"


def heading(one: Conversation, prompt: str | None) -> Iterator[str]:
    """Yield the beginning of a conversation."""
    yield f'<section id="{_safe(one.id)}">\n<h1>{_safe(name_of(one))}</h1>\n<dl>\n'
    for name, value in facts_of(one):
        yield f"<dt>{_safe(name)}</dt><dd>{_safe(value)}</dd>\n"
    yield "</dl>\n"
    if prompt:
        yield f"<details><summary>system prompt</summary>{_pre(prompt)}</details>\n"


def message(line: ConversationLine, tools: Mapping[str, str]) -> Iterator[str]:
    """Yield one message; ``tools`` names the tool of each call so far."""
    entry = line.entry
    role = one_line(str(entry.message.get("role")))
    known = role if role in _ROLES else "other"
    number = "" if line.turn is None else f" · {line.turn}"
    broken = f" · <i>{_safe(broken_words(line))}</i>" if line.status else ""
    when = _safe(moment(entry.ts))
    yield f'<article class="{known}">\n<header><b>{_safe(role)}</b>{number} · {when}{broken}</header>\n'
    for piece in pieces_of(entry.message, tools):
        yield _piece(piece)
    yield "</article>\n"


def compaction(mark: CompactionMark) -> Iterator[str]:
    """Yield the place where a compaction was."""
    yield f'<p class="compaction">{_safe(compaction_line(mark))}</p>\n'


def ending() -> Iterator[str]:
    """Yield the end of a conversation."""
    yield "</section>\n"


def _piece(piece: TranscriptPiece) -> str:
    if piece.kind == "text":
        return f"{_pre(piece.body, 'text')}\n"
    if piece.kind == "image":
        return f'<img alt="picture" src="{_safe(piece.body)}">\n' if piece.body else "<p><i>picture</i></p>\n"
    label = _safe(one_line(piece.label))
    name = {"call": f"<b>{label}</b>", "result": f"result {label}".rstrip()}.get(piece.kind, f"<i>{label}</i>")
    if not piece.body.strip():
        return f"<p>{name}</p>\n"
    state = " open" if piece.kind in {"call", "result"} and len(piece.body) <= OPEN_UP_TO else ""
    return f"<details{state}><summary>{name}</summary>{_pre(piece.body)}</details>\n"


def _pre(text: str, kind: str = "") -> str:
    # A browser drops a line break directly after the tag, so one more is given.
    return f'<pre class="{kind}">\n{_safe(text)}</pre>' if kind else f"<pre>\n{_safe(text)}</pre>"


def _safe(text: str) -> str:
    return escape(plain(text), quote=True)
