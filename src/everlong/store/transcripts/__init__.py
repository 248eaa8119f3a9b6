"""The export of conversations, message by message, so that a long one takes no more memory than a short one.

JSONL has an object for each conversation: its facts, its messages as they came, their times, and its compactions;
`everlong sessions import` reads it back. A part alone, a session, is written in the same way.

In Markdown words are quoted, so that no heading, list or unclosed fence of theirs reaches beyond them. What could be
markup of a page or fetch a picture, and all tool traffic, stands in fences that are longer than any inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from everlong.model import called_tools
from everlong.store.conversations import CompactionMark, Conversation, ConversationLine
from everlong.store.session_log import json_text
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
    from everlong.store.store import Store

__all__ = ["FORMATS", "Format", "TranscriptPiece", "one_line", "pieces_of", "plain", "suffix_of", "write_transcript"]


Format: TypeAlias = Literal["jsonl", "json", "markdown"]
FORMATS: tuple[Format, ...] = get_args(Format)

KIND = "everlong-conversation/1"
"""The kind of an object that is an exported conversation."""


STATUS = "_status"
"""The key of an exported message for the end of a reply that broke off."""

ERROR = "_error"
"""The key for the error that ended it."""

_WHOLE_FACTS = (
    *("title", "source", "platform", "client", "client_session", "folder", "user", "model", "works_for", "started"),
    *("active", "ended", "end_reason", "origin", "parts"),
)
_SUFFIXES: dict[Format, str] = {"jsonl": ".jsonl", "json": ".json", "markdown": ".md"}


def suffix_of(form: Format) -> str:
    """Return the file name suffix of a format."""
    return _SUFFIXES[form]


Clean: TypeAlias = Callable[[str], str]


def _as_it_is(text: str) -> str:
    return text


def _cleaned(value: Any, clean: Clean) -> Any:
    """Return a value with every text in it cleaned, keys too."""
    if clean is _as_it_is:
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): _cleaned(one, clean) for name, one in value.items()}
    return [_cleaned(one, clean) for one in value] if isinstance(value, list | tuple) else value


def _cleaned_facts(one: Conversation, clean: Clean) -> Conversation:
    """Return a conversation with its facts cleaned; its id stays."""
    if clean is _as_it_is:
        return one
    told = ("title", "platform", "client", "client_session", "folder", "user", "model", "origin")
    return replace(one, **{name: _cleaned(getattr(one, name), clean) for name in told if hasattr(one, name)})


def _cleaned_line(line: ConversationLine, clean: Clean) -> ConversationLine:
    if clean is _as_it_is:
        return line
    message = _cleaned(line.entry.message, clean)
    return line._replace(entry=line.entry._replace(message=message), error=_cleaned(line.error, clean))


def write_transcript(
    store: Store,
    chosen: Sequence[Conversation],
    form: Format,
    write: Callable[[str], Any],
    *,
    clean: Clean = _as_it_is,
) -> int:
    """Write conversations in order; return how many messages they had.

    Every text can be encoded as UTF-8. ``clean`` gets every text of the conversations before it is written; without it
    they are written as they came, so that they can be imported again.
    """
    count = 0
    chosen = [_cleaned_facts(one, clean) for one in chosen]
    for one in chosen:
        if form == "jsonl":
            count += _write_jsonl(store, one, write, clean)
        elif form == "json":
            count += _write_log(store, one, write, clean)
        else:
            count += _write_markdown(store, one, write, clean)
    return count


def _write_each(write: Callable[[str], Any], texts: Iterator[str]) -> None:
    for text in texts:
        write(text)


def conversation_log(store: Store, found: Conversation) -> dict[str, Any]:
    """Return the log of a whole conversation."""
    lines = [line for line in store.conversations.entries(found.id) if isinstance(line, ConversationLine)]
    return {
        "session_id": found.id,
        **{name: value for name, value in found.to_dict().items() if name not in {"id", "messages", "compactions"}},
        "system_prompt": store.conversations.system_prompt(found.id),
        "messages": [{**exported(line), "timestamp": line.entry.ts} for line in lines],
        "compactions": [asdict(one) for one in store.conversations.compactions(found.id)],
    }


def _write_markdown(store: Store, one: Conversation, write: Callable[[str], Any], clean: Clean) -> int:
    _write_each(write, _heading(one, _cleaned(store.conversations.system_prompt(one.id), clean)))
    count = 0
    tools: dict[str, str] = {}
    for line in store.conversations.entries(one.id):
        if isinstance(line, CompactionMark):
            _write_each(write, _compaction(line))
            continue
        shown = _cleaned_line(line, clean)
        tools |= called_tools(shown.entry.message)
        _write_each(write, _message(shown, tools))
        count += 1
    write("\n")
    return count


def _write_jsonl(store: Store, one: Conversation, write: Callable[[str], Any], clean: Clean) -> int:
    facts = {"kind": KIND, "id": one.id, **{name: getattr(one, name) for name in _WHOLE_FACTS}}
    facts |= {"type": one.kind, "own_root": store.conversations.has_own_root(one.id)}
    write(json_text(facts)[:-1] + ', "messages": [')
    times: list[float] = []
    compactions: list[dict[str, Any]] = []
    prompt = _cleaned(store.conversations.system_prompt(one.id), clean)
    if prompt is not None:
        write(json_text({"role": "system", "content": prompt}))
        times.append(one.started)
    for line in store.conversations.entries(one.id):
        if isinstance(line, CompactionMark):
            compactions.append({"before_message": len(times), **line.to_dict()})
            continue
        write((", " if times else "") + json_text(exported(_cleaned_line(line, clean))))
        times.append(line.entry.ts)
    write(f'], "times": {json_text(times)}, "compactions": {json_text(compactions)}}}\n')
    return len(times) - (prompt is not None)


def exported(line: ConversationLine) -> dict[str, Any]:
    """Return a message as it is exported: one that broke off says so."""
    if line.status is None:
        return line.entry.message
    why = {} if line.error is None else {ERROR: line.error}
    return {**line.entry.message, STATUS: line.status, **why}


def _write_log(store: Store, one: Conversation, write: Callable[[str], Any], clean: Clean) -> int:
    log = conversation_log(store, one)
    write(json_text(_cleaned(log, clean), indent=2) + "\n")
    return len(log["messages"])


# -- Markdown ----------------------------------------------------------------------------------------------------------

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!<>|&~])")
_TICKS = re.compile(r"`+")


def _heading(one: Conversation, prompt: str | None) -> Iterator[str]:
    """Yield the beginning of a conversation."""
    yield f"# {_escaped(name_of(one))}\n\n"
    for name, value in facts_of(one):
        yield f"- {name}: {_escaped(value)}\n"
    if prompt:
        yield f"\n## system\n\n{_fenced(prompt)}\n"


def _message(line: ConversationLine, tools: Mapping[str, str]) -> Iterator[str]:
    """Yield one message; ``tools`` names the tool of each call so far."""
    entry = line.entry
    role = _escaped(one_line(str(entry.message.get("role"))))
    number = "" if line.turn is None else f"{line.turn} · "
    broken = f" · {_escaped(broken_words(line))}" if line.status else ""
    yield f"\n## {number}{role} · {moment(entry.ts)}{broken}\n"
    for piece in pieces_of(entry.message, tools):
        yield f"\n{_piece(piece)}\n"


def _compaction(mark: CompactionMark) -> Iterator[str]:
    """Yield the place where a compaction was."""
    yield f"\n---\n\n*{_escaped(compaction_line(mark))}*\n\n---\n"


def _piece(piece: TranscriptPiece) -> str:
    label = _escaped(one_line(piece.label))
    if piece.kind == "text":
        return _quoted(piece.body)
    if piece.kind == "image":
        return "*image*"
    name = {"call": f"**call of {label}**", "result": f"**result** {label}".rstrip()}.get(piece.kind, f"*{label}*")
    return f"{name}\n\n{_fenced(piece.body)}" if piece.body.strip() else name


def _quoted(text: str) -> str:
    if "<" in text or "![" in text:
        return _fenced(text)
    return "\n".join(f"> {line}".rstrip() for line in plain(text).split("\n"))


def _fenced(text: str) -> str:
    """Return a text as it stands, in a fence that it cannot close."""
    body = plain(text)
    longest = max((len(run) for run in _TICKS.findall(body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{body}\n{fence}"


def _escaped(text: str) -> str:
    """Return a text on one line in which no character is markup."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
