"""``edit_file``: one text of a file replaced by another, where it stands exactly once.

Line ends are not what a model means when it quotes a file, so a line break in the quoted text matches either kind, and
the new text gets the kind that stood there. Everything else must be the same to the letter. Bytes that are no UTF-8
stay as they are.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, NamedTuple

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.diffs import diff_of
from everlong.agent.tools.saving import check_writable, encoded, load, looks_binary, save
from everlong.errors import ToolError

_LINE_END = r"(?:\r\n|(?<!\r)\n)"
_COMPARED_LINES = 5_000
_COMPARED_CHARS = 300


class Edited(NamedTuple):
    """A text after an edit, and the lines at which it was changed."""

    text: str
    at: list[int]


def edit_file(path: str, old: str, new: str, context: ToolContext, replace_all: bool = False) -> str:
    """Replace a text in a file by another one. The old text must stand in the file exactly once, to the letter.

    Quote enough lines around the change to make it unique, with their indentation and without line numbers.

    Args:
        path: The file, relative to the root folder.
        old: The text that is replaced.
        new: What takes its place; empty to remove it.
        replace_all: Replace it everywhere rather than once.
    """
    resolved, _, edited = _planned(path, old, new, context, replace_all=replace_all)
    save(context.workspace, resolved, edited.text.encode("utf-8", "surrogateescape"))
    places = ", ".join(map(str, edited.at[:10])) + (" …" if len(edited.at) > 10 else "")
    where = f"at line {places}" if len(edited.at) == 1 else f"in {len(edited.at)} places, at lines {places}"
    return f"Edited {context.workspace.shown(resolved)} {where}."


def preview_edit(args: dict[str, Any], context: ToolContext) -> str:
    """The file's lines that go and come."""
    resolved, before, edited = _planned(
        args["path"], args["old"], args["new"], context, replace_all=args.get("replace_all", False)
    )
    return diff_of(context.workspace.shown(resolved), before, edited.text)


def _planned(path: str, old: str, new: str, context: ToolContext, *, replace_all: bool) -> tuple[Path, str, Edited]:
    workspace = context.workspace
    resolved = workspace.resolve(path)
    encoded(old, "old")
    encoded(new, "new")
    data = load(workspace, resolved)
    check_writable(workspace, resolved)
    name = workspace.shown(resolved)
    if looks_binary(data):
        raise ToolError(f"{name} is a binary file; edit_file changes text only")
    before = data.decode("utf-8", "surrogateescape")
    return resolved, before, edited_text(before, old, new, name, replace_all=replace_all)


def edited_text(text: str, old: str, new: str, name: str, *, replace_all: bool = False) -> Edited:
    """A text with the old words replaced by the new ones; a `ToolError` where they are not there just once."""
    if not old:
        raise ToolError(f"'old' is empty; quote the text of {name} that is to be replaced, or use write_file")
    if _with_lf(old) == _with_lf(new):
        raise ToolError("'old' and 'new' are the same, so there is nothing to change")
    spans = _found(text, old)
    if not spans:
        raise ToolError(f"'old' is not in {name}. {_near_misses(text, old)}")
    at = [text.count("\n", 0, start) + 1 for start, _ in spans]
    if len(spans) > 1 and not replace_all:
        raise ToolError(
            f"'old' is in {name} {len(spans)} times, at lines {', '.join(map(str, at[:20]))}; quote more around the "
            "one that is meant, or say replace_all=true"
        )
    pieces, end, done = [], 0, []
    is_crlf = text.count("\r\n") * 2 > text.count("\n")
    for (start, stop), line in zip(spans, at, strict=True):
        if start < end:  # overlaps the one before, which is already replaced
            continue
        pieces += [text[end:start], _in_style(new, text[start:stop], is_crlf=is_crlf)]
        end = stop
        done.append(line)
    return Edited("".join([*pieces, text[end:]]), done)


def _with_lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _found(text: str, old: str) -> list[tuple[int, int]]:
    """Every place where a text stands, also places that overlap; a line break matches either kind."""
    wanted = _with_lf(old)
    if "\r\n" not in text or "\n" not in wanted:
        spans, at = [], text.find(wanted)
        while at >= 0:
            spans.append((at, at + len(wanted)))
            at = text.find(wanted, at + 1)
        return spans
    pattern = re.compile(_LINE_END.join(map(re.escape, wanted.split("\n"))))
    spans, start = [], 0
    while found := pattern.search(text, start):
        spans.append(found.span())
        start = found.start() + 1
    return spans


def _in_style(new: str, replaced: str, *, is_crlf: bool) -> str:
    """The new text with the line ends of what it replaces, or of the file where that has none."""
    breaks = replaced.count("\n")
    crlf = replaced.count("\r\n") * 2 > breaks if breaks else is_crlf
    return _with_lf(new).replace("\n", "\r\n") if crlf else new if "\r\n" not in replaced else _with_lf(new)


# -- what the model may have meant ------------------------------------------------------------------------------------


def _near_misses(text: str, old: str) -> str:
    lines = text.splitlines()
    wanted = [line.strip() for line in old.strip("\r\n").splitlines()]
    if spaced := _same_but_space(lines, wanted):
        shown = "\n".join(lines[spaced - 1 : spaced - 1 + min(len(wanted), 8)])
        return f"Lines {spaced} to {spaced + len(wanted) - 1} differ from it in white space only. They are:\n{shown}"
    first = max(wanted, key=len, default="")[:_COMPARED_CHARS]
    compared = [line[:_COMPARED_CHARS] for line in lines[:_COMPARED_LINES]]
    close = difflib.get_close_matches(first, list(dict.fromkeys(compared)), n=3, cutoff=0.6) if first else []
    if close:
        found = "\n".join(f"{compared.index(line) + 1:>6}\t{line}" for line in close)
        return f"Read the file again; lines like it are:\n{found}"
    return "Nothing in it is much like it; read the file again."


def _same_but_space(lines: list[str], wanted: list[str]) -> int:
    """The first line (from 1) of a stretch that is the same but for the space around lines; 0 without one."""
    if not wanted or not any(wanted):
        return 0
    bare = [line.strip() for line in lines]
    for start in range(len(bare) - len(wanted) + 1):
        if bare[start] == wanted[0] and bare[start : start + len(wanted)] == wanted:
            return start + 1
    return 0
