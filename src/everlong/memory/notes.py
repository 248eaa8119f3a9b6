"""The built-in memory: notes in two Markdown files that a person can read and edit.

``MEMORY.md`` holds what the agent noted for itself, ``USER.md`` what is known of the user. A session's prompt has the
notes as they were when it began, so that its bytes, and with them the provider's cache, never move; changes show in the
answers of the tools, in what a summary is told, and in the next session.

What is noted while an agent works in a project stays with that project: an agent reads hostile pages too, and what it
was talked into must not reach the prompts of other projects. Notes for all of them are the user's own to write. Knows
files and notes, but no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from everlong.config.paths import data_home
from everlong.context.summary.text import clip, one_line
from everlong.errors import NotesError
from everlong.memory.block import notes_block, unshown_notes
from everlong.memory.entries import Entry, entries_of, with_added, with_removed, with_replaced
from everlong.memory.files import NotesFile
from everlong.memory.provider import MemoryProvider
from everlong.memory.search import ranked
from everlong.memory.text import has_words, looked_for, sameness, shown, storable
from everlong.memory.tools import answer, tool_schemas
from everlong.model import Message

Target: TypeAlias = Literal["memory", "user"]
"""Which file: the agent's own notes, or what is known of the user."""

_FILES: dict[Target, str] = {"memory": "MEMORY.md", "user": "USER.md"}
_NEW_FILES: dict[Target, str] = {
    "memory": "# Notes\n\n<!-- What the agent noted for itself, one note per list item, the newest last. -->\n\n",
    "user": "# About the user\n\n<!-- What is known of the user, one note per list item, the newest last. -->\n\n",
}
_NOTE_CHARS = 2_000
_FILE_CHARS = 40_000
_TOLD_CHARS = 1_200


class Found(NamedTuple):
    """A note that a search found, and where."""

    target: Target
    text: str
    is_of_project: bool = False
    """Whether it is shown in one project only."""


class Size(NamedTuple):
    """How full a file is."""

    notes: int
    characters: int
    most_characters: int
    unshown: int
    """Notes for which the next session's prompt has no room; 0 where it is to have none."""


class NotesMemory(MemoryProvider):
    """Keeps notes in the files of a folder.

    Args:
        folder: where the files are; ``memories`` in the user's data folder if none is given.
        project: the project that notes are taken in and kept for; without one they are for every project.
        budget_tokens: how many tokens of the system prompt the notes may take; 0 keeps them out of it.
        wait_seconds: how long a change waits for other programs that change notes.
    """

    reading_tools = frozenset({"memory_search"})

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        project: Path | None = None,
        budget_tokens: int = 1_200,
        wait_seconds: float = 5.0,
    ) -> None:
        self.folder = data_home() / "memories" if folder is None else Path(folder)
        self.project = project
        self.budget_tokens = budget_tokens
        own = self.folder if project is None else self.folder / "projects" / _project_name(project)
        self._files = {target: NotesFile(own / name, wait_seconds) for target, name in _FILES.items()}
        self._shared = {target: NotesFile(self.folder / name, wait_seconds) for target, name in _FILES.items()}
        self._origin = ""
        self._block = ""
        self._added: list[str] = []
        self._removed: list[str] = []

    @property
    def name(self) -> str:
        """``notes``."""
        return "notes"

    # ── notes ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def notes(self, target: Target) -> list[str]:
        """The notes as they are now, from the top: those for every project, then those for this one."""
        own = [entry.text for entry in entries_of(self._file(target).read())]
        return [*self._shared_notes(target), *own]

    def _shared_notes(self, target: Target) -> list[str]:
        """The notes for every project, where there are others beside them."""
        if self.project is None:
            return []
        return [entry.text for entry in entries_of(self._shared[target].read())]

    def add(self, target: Target, text: str) -> str:
        """Save a note at the end of a file; returns it as it was saved."""
        note = _checked(text)

        def edit(before: str) -> str:
            _refuse_duplicate(note, self._shared_notes(target), None)
            _refuse_duplicate(note, [entry.text for entry in entries_of(before)], None)
            return self._fitting(target, before, with_added(before or self._new_file(target), note, self._origin))

        self._change(target, edit, lambda texts: [*texts, note])
        self._added.append(note)
        return note

    def replace(self, target: Target, old: str, new: str) -> str:
        """Give a note other words, in its place; returns it as it was saved."""
        note = _checked(new)
        replaced = ""
        place = 0

        def edit(before: str) -> str:
            nonlocal replaced, place
            entries = entries_of(before)
            place = self._place(target, entries, old)
            replaced = entries[place].text
            _refuse_duplicate(note, [entry.text for entry in entries], place)
            return self._fitting(target, before, with_replaced(before, entries[place], note))

        self._change(target, edit, lambda texts: [*texts[:place], note, *texts[place + 1 :]])
        self._forget(replaced)
        self._added.append(note)
        return note

    def remove(self, target: Target, old: str) -> str:
        """Remove a note; returns what it was."""
        removed = ""
        place = 0

        def edit(before: str) -> str:
            nonlocal removed, place
            entries = entries_of(before)
            place = self._place(target, entries, old)
            removed = entries[place].text
            return with_removed(before, entries[place])

        self._change(target, edit, lambda texts: [*texts[:place], *texts[place + 1 :]])
        self._forget(removed)
        return removed

    def search(self, query: str, target: Target | None = None, limit: int = 10) -> list[Found]:
        """Notes with words of the query, best first; the newest ones for an empty query."""
        targets: list[Target] = ["user", "memory"] if target is None else [target]
        notes = []
        for each in targets:
            shared = len(self._shared_notes(each))
            notes += [
                Found(each, text, self.project is not None and number >= shared)
                for number, text in enumerate(self.notes(each))
            ]
        return [notes[place] for place in ranked(query, [note.text for note in notes])[:limit]]

    def size(self, target: Target) -> Size:
        """How many notes a file has, how long it is and may be, and how many the next prompt has no room for."""
        text = self._file(target).read()
        unshown = unshown_notes(self.notes("user"), self.notes("memory"), self.budget_tokens)
        left_out = unshown[0 if target == "user" else 1] if self.budget_tokens else 0
        return Size(len(entries_of(text)), len(text), _FILE_CHARS, left_out)

    def current_block(self, budget_tokens: int | None = None) -> str:
        """What the prompt of a session that began now would have, or what would fit another budget."""
        budget = self.budget_tokens if budget_tokens is None else budget_tokens
        return notes_block(self.notes("user"), self.notes("memory"), budget)

    # ── what a host calls ──────────────────────────────────────────────────────────────────────────────────────────

    def initialize(self, session_id: str, **facts: Any) -> None:
        """Take the snapshot that the session's prompt shows; notes of the session say where they came from."""
        self._origin = f"session {session_id} in {facts['folder']}" if facts.get("folder") else ""
        self._added.clear()
        self._removed.clear()
        self._block = ""
        self._block = self.current_block()

    def system_prompt_block(self) -> str:
        """The notes as they were when the session began."""
        return self._block

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """``memory_add``, ``memory_replace``, ``memory_remove`` and ``memory_search``."""
        return tool_schemas()

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of the tools."""
        del kwargs
        return answer(self, name, args)

    def on_pre_compress(self, messages: list[Message]) -> str:
        """The changes of this session, which the prompt does not show and the compaction would take away."""
        del messages
        told = [("Saved to memory in this session", self._added), ("Removed from memory", self._removed)]
        return ". ".join(f"{label}: {_newest(notes)}" for label, notes in told if notes)

    def _forget(self, note: str) -> None:
        """A note is gone: what came and went in this session nobody needs to be told of."""
        if note in self._added:
            self._added.remove(note)
        else:
            self._removed.append(note)

    # ── the files ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _new_file(self, target: Target) -> str:
        if self.project is None:
            return _NEW_FILES[target]
        about = " ".join(str(self.project).replace("--", "- -").split())
        return f"{_NEW_FILES[target]}<!-- Only for the project in {about} -->\n\n"

    def _place(self, target: Target, entries: list[Entry], old: str) -> int:
        try:
            return _place([entry.text for entry in entries], old, _FILES[target])
        except NotesError:
            wanted = looked_for(old)
            if wanted and any(wanted in looked_for(text) for text in self._shared_notes(target)):
                raise NotesError(
                    "this note is for every project, and only the user changes those; ask them to edit "
                    f"{self._shared[target].path}"
                ) from None
            raise

    def _file(self, target: Target) -> NotesFile:
        if target not in self._files:
            raise NotesError(f"target must be memory or user, not {target!r}")
        return self._files[target]

    def _change(self, target: Target, edit: Callable[[str], str], meant: Callable[[list[str]], list[str]]) -> None:
        """Change a file, and refuse where its notes would not be those that were meant."""

        def checked_edit(before: str) -> str:
            after = edit(before)
            expected = meant([entry.text for entry in entries_of(before)])
            if [entry.text for entry in entries_of(after)] != expected:
                raise NotesError(
                    f"this would change other notes of {_FILES[target]} too, because of a comment that is not closed "
                    "or of indented lines; ask the user to tidy the file; nothing was changed"
                )
            return after

        self._file(target).change(checked_edit)

    def _fitting(self, target: Target, before: str, after: str) -> str:
        if len(after) > max(_FILE_CHARS, len(before)):
            raise NotesError(
                f"{_FILES[target]} is full: it has {len(before):,} of {_FILE_CHARS:,} characters, and this needs "
                f"{len(after) - len(before):,} more; merge notes with memory_replace or remove old ones with "
                "memory_remove, then try again"
            )
        return after


def _checked(text: str) -> str:
    note = storable(text)
    if not has_words(note):
        raise NotesError(
            "a note must have words besides punctuation, invisible characters and secrets; nothing was saved"
        )
    if len(note) > _NOTE_CHARS:
        raise NotesError(
            f"the note has {len(note):,} characters, and {_NOTE_CHARS:,} are allowed; say it shorter, or as "
            "several notes"
        )
    return note


def _newest(notes: list[str]) -> str:
    """The last of some notes in one line."""
    kept: list[str] = []
    room = _TOLD_CHARS
    for note in reversed(notes):
        line = clip(one_line(shown(note)), 300)
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return "; ".join(reversed(kept))


def _project_name(project: Path) -> str:
    """The folder of a project's notes: a name that a person recognises, and no other project has."""
    path = str(project.resolve())
    plain = "".join(char if char.isalnum() or char in "-_." else "-" for char in project.resolve().name)[:40]
    return f"{plain.strip('.') or 'project'}-{hashlib.sha256(path.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def _refuse_duplicate(note: str, texts: list[str], besides: int | None) -> None:
    same = sameness(note)
    for place, text in enumerate(texts):
        if place != besides and sameness(text) == same:
            raise NotesError(f"this is noted already: {clip(one_line(shown(text)), 200)!r}; nothing was changed")


def _place(notes: list[str], old: str, file: str) -> int:
    """Which note is meant by its words or a part of them that no other note has."""
    wanted = looked_for(old)
    texts = [looked_for(note) for note in notes]
    if not wanted:
        raise NotesError("old must be a note, or a part of one; it is empty")
    for matches in (
        [place for place, text in enumerate(texts) if text == wanted],
        [place for place, text in enumerate(texts) if wanted in text],
        [place for place, text in enumerate(texts) if wanted.casefold() in text.casefold()],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            listed = "; ".join(repr(clip(texts[place], 120)) for place in matches[:5])
            raise NotesError(
                f"{clip(wanted, 120)!r} occurs in {len(matches)} notes of {file}: {listed}; give more of "
                "the note's words"
            )
    near = [repr(clip(texts[place], 120)) for place in ranked(wanted, texts)[:3]]
    hint = f"the nearest are {'; '.join(near)}" if near else "memory_search finds what is there"
    raise NotesError(f"no note of {file} has the words {clip(wanted, 120)!r}; {hint}")
