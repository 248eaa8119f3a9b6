"""The parts of a message by author: a person's typed words, a project's rules, material, and the client's additions.

Clients wrap people's words and add to them: reminders, the state of an editor, attached files, the text of a slash
command. Their tags are recognised by name, so HTML or code that a person pastes stays as it is:

    added       text of the client; left out, except for the project's rules in it
    rules       the project's or the person's standing instructions
    material    a file, a page, the result of a tool, or a summary that the client sends as text
    held        a person's words inside a tag
    command     a slash command and its arguments, as they were typed

Titles, goals, newest requests, summaries and search snippets all read messages here.

Tags without an end are text. Every text is read once, from left to right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from everlong.model.content import part_text, parts_of, text_of
from everlong.model.message import EPHEMERAL, SUMMARY_STARTS, Message

__all__ = [
    "Reading",
    "begins_with_wrapper",
    "newest_request",
    "read_message",
    "readable_text",
    "title_from",
    "typed_words",
]

_TITLE_LENGTH = 60
_SHORTEST_CUT = 20
"""The least length of a title that is cut between words; a shorter one is cut inside a word."""
_MARGIN = 40
"""The largest indentation of a tag that begins a line."""


class _Kind(Enum):
    """The kind of a piece of a message."""

    SAID = auto()
    """Text outside of all known tags."""
    ADDED = auto()
    """Written by the client; in any place."""
    RULES = auto()
    """Standing instructions of the project or the person; in any place."""
    MATERIAL = auto()
    """A file, a page or an output that the client sends along; in any place."""
    ATTACHED = auto()
    """A file or picture; only if a line begins with its tag, which names it."""
    HELD = auto()
    """A person's words; the text beside them is the client's."""
    MAYBE_HELD = auto()
    """A person's words if there is no text beside them; people write tags with these names, too."""
    COMMAND = auto()
    """The name of a slash command; the text after it is the command's prompt."""
    ARGUMENTS = auto()
    """The arguments of the slash command before it."""
    LOCAL_INPUT = auto()
    """A line typed for the client's own shell."""
    LOCAL_OUTPUT = auto()
    """Output of a command that the client ran itself; the text after it is a person's."""


_NAMES: dict[_Kind, str] = {
    _Kind.ADDED: """
        system-reminder system_reminder system_notification system-update user-prompt-submit-hook everlong-recall
        command-message command-contents command-instructions skill_content fork-boilerplate
        task-notification teammate-message cross-session-message new-diagnostics
        ide_opened_file ide_selection
        environment_context environment_details environment_info environments_instructions session_context
        skills_instructions apps_instructions plugins_instructions
        context_window_reminder context_window_guidance current_time_reminder codex_internal_context
        collaboration_mode multi_agent_mode realtime_conversation model_switch personality_spec
        turn_aborted user_action user_shell_command subagent_notification image_resize_notice
        workspace_diagnostics git_working_state hook_context mode_notice
        additional_data open_and_recently_viewed_files project_layout user_info
        workspace_info editorContext reminderInstructions
        """,
    _Kind.RULES: "user_instructions INSTRUCTIONS user_rules explicit_instructions userMemory",
    _Kind.MATERIAL: """
        file_content final_file_content folder_content url_content file_mention terminal_output mcp-resource
        attached_files
        """,
    _Kind.ATTACHED: "file image attachment skill",
    _Kind.HELD: "user_query user_message user_input user_command userRequest user-memory-input pr_description",
    _Kind.MAYBE_HELD: "task feedback answer prompt query",
    _Kind.COMMAND: "command-name",
    _Kind.ARGUMENTS: "command-args",
    _Kind.LOCAL_INPUT: "bash-input",
    _Kind.LOCAL_OUTPUT: "local-command-caveat local-command-stdout local-command-stderr bash-stdout bash-stderr",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_ANYWHERE = frozenset({_Kind.ADDED, _Kind.RULES, _Kind.MATERIAL, _Kind.LOCAL_OUTPUT})
"""Kinds with names that nobody types by chance; a tag of another kind counts only at the beginning of a line."""
_CLOSED_AT_GAPS = _ANYWHERE | {_Kind.HELD}
_LEFT_OUT = _ANYWHERE | {_Kind.ATTACHED}
_WRAPPING = _LEFT_OUT | {_Kind.COMMAND, _Kind.ARGUMENTS, _Kind.LOCAL_INPUT}
"""Kinds whose tags are never a person's own words."""

# Possessive: a tag that does not end must not be read twice.
_TAG = re.compile(r"<(?P<slash>/?+)(?P<name>[A-Za-z][\w-]*+)(?P<attributes>(?:\s[^<>]*+)?+)>")
_NAMED = re.compile(r"\s(?:name|path|filePath|id)=")

_NOTICES = (
    "Caveat: The messages below were generated",
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools",
    "[ERROR] You did not use a tool",
    "[NOTE] Some previous conversation history",
    "Please always provide EXACTLY ONE action in triple backticks",
    "Here are summaries of some files present in my git",
    "I am working with you on code in a git repository",
    "I am not sharing any files that you can edit",
    "I switched to a new code base. Please don't",
    "Don't try and edit any existing code without asking me to",
)
"""The beginnings of texts that clients write in a user's name: file listings, orders, complaints about an answer."""
_GIVEN = (
    *SUMMARY_STARTS,
    "This session is being continued from a previous",
    "Another language model started to solve this problem",
    "The conversation history before this point was compacted",
    "The following is a summary of a branch that this",
    "Here are some READ ONLY files, provided",
    "I have *added these files to the chat*",
)
"""The beginnings of texts in which clients repeat earlier material: summaries and files."""
_NOTICE = re.compile(r"This is the [\w ]{1,40}\. We are setting up the context")
_GIVEN_NAMED = re.compile(
    r"Called the \w{1,40} tool with the following input"
    r"|<path>[^<\n]{0,400}</path>\s{0,4}<type>|<file>\s{0,4}\d{5}\|"
)
"""The same with a name or a path in between."""
_RESULT = re.compile(r"\[[^\]\n]{1,200}\] Result:|\[TASK RESUMPTION\]")
"""The beginning of a tool result or report that a client sends as text; a person's words in it have a tag."""
_REPORT = re.compile(r"The user (?:has )?(?:provided|denied)|You seem to be having trouble")
"""A client's introduction of a person's words in a tag; people begin sentences like this, too."""
_INSTRUCTIONS = re.compile(r"# AGENTS\.md instructions")
_INTERRUPTED = re.compile(r"\[Request interrupted by user")
_EDITOR_CONTEXT = re.compile(r"# (?:Context from my IDE|Files mentioned by the user|Selected text)")
_REQUEST = "## My request for Codex:"
_MARKER = re.compile(r"^[ \t]*+\[(?:Request interrupted by user|Image: |Image #)[^\]\n]*+\][ \t]*+$", re.MULTILINE)
_RULES_FILE = re.compile(
    r"^(?:Contents of (?P<path>[^\n]{1,400}\.md)\b[^\n]{0,200}:|Instructions from: ?[^\n]{1,400})[ \t]*$", re.MULTILINE
)
"""The line in a reminder above a file with the project's rules."""
_RULES_END = re.compile(
    r"^(?:# (?:currentDate|gitStatus|directoryStructure|codeStyle|userEmail|claudeMd)[ \t]*$"
    r"|[ \t]*IMPORTANT: this context may or may not)",
    re.MULTILINE,
)
"""The end of those rules: the reminder's next key, or its last sentence."""


class Reading(NamedTuple):
    """The text of a message by author."""

    typed: str = ""
    """The words that a person typed; a slash command counts, with its arguments."""
    rules: str = ""
    """The project's or the person's standing instructions, such as those of a CLAUDE.md or AGENTS.md."""
    material: str = ""
    """Files, results of tools and summaries; the whole text of a message that is not the user's."""
    added: str = ""
    """The client's additions that nobody needs: reminders, listings, the state of an editor."""
    is_command: bool = False
    """True if nothing but a command was typed."""
    is_local: bool = False
    """True if the message reports a command that the client ran itself."""

    @property
    def text(self) -> str:
        """All text that is worth reading, typed words first."""
        return "\n".join(filter(None, (self.typed, self.rules, self.material)))


def read_message(message: Message) -> Reading:
    """Return the text of a message by author.

    Clients add text only to messages of the user and to tool results; all other messages are material as they are.
    """
    role = message.get("role")
    if role == "tool":
        return _read_result(text_of(message))
    if role != "user":
        return Reading(material=text_of(message))
    if message.get(EPHEMERAL):
        return Reading(added=text_of(message))
    found = _MessageReader()
    for part in parts_of(message):
        if not part.get(EPHEMERAL):
            found.take_part(part_text(part))
    return found.reading()


def readable_text(message: Message) -> str:
    """Return the text of a message without a client's additions."""
    return read_message(message).text


def typed_words(message: Message) -> str:
    """Return the words that a person typed in a user message, without a client's tags and additions.

    A slash command counts as typed, with its arguments; the prompt that the client puts in its place does not. Empty
    for messages of other roles and without typed words.
    """
    return read_message(message).typed if message.get("role") == "user" else ""


def newest_request(messages: Sequence[Message], skipped: Collection[int] = ()) -> int | None:
    """Return the index of the newest message in which a person asked for something; None without one.

    A command that the client ran itself asks the model for nothing. Messages at the indices ``skipped`` are not read.
    """
    was_local = False
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") != "user" or index in skipped:
            was_local = False
            continue
        found = read_message(messages[index])
        if found.typed and not (found.is_command and (was_local or found.is_local)):
            return index
        was_local = found.is_local or (was_local and not found.typed)
    return None


def begins_with_wrapper(text: str) -> bool:
    """Return whether a text begins with a client's own tag or notice, whole or cut short."""
    said = text.lstrip()
    tag = _TAG.match(said)
    if tag is not None and _KINDS.get(tag["name"]) in _WRAPPING:
        return _KINDS[tag["name"]] is not _Kind.ATTACHED or _NAMED.match(tag["attributes"]) is not None
    return (
        _is_notice(said)
        or _is_given(said)
        or _INSTRUCTIONS.match(said) is not None
        or _INTERRUPTED.match(said) is not None
    )


def title_from(messages: Sequence[Message]) -> str | None:
    """Return a title of at most 60 characters from the newest user message with typed words; None without one.

    Pass the messages of a conversation's opening request: clients send examples, file listings and context first and
    the question last. Of a longer transcript, pass the messages before the first answer.
    """
    for message in reversed(messages):
        if title := _title(typed_words(message)):
            return title
    return None


# -- reading a message -------------------------------------------------------------------------------------------------


_LONGEST_TYPED = 1_000_000


class _Piece(NamedTuple):
    """A stretch of a text: either outside of all known tags, or one tag with its text."""

    kind: _Kind
    words: str
    """The text, without the tag."""
    whole: str
    """The text with the tag."""


class _MessageReader:
    """Collects the pieces of one message."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._written: list[_Piece] = []
        """Text outside of tags, and the tags that may hold a person's words, in order."""
        self._rules: list[str] = []
        self._material: list[str] = []
        self._added: list[str] = []
        self._command: list[str] = []
        """The newest command: its name, and its arguments."""
        self._is_prompt = False
        """True if the following text is the prompt of a slash command."""
        self._is_result = False
        """True if the following text is the result of a tool."""
        self._is_local = False

    def take_part(self, part: str) -> None:
        if len(part) > _LONGEST_TYPED:  # nobody types so much, and looking for tags in it takes long
            self._material.append(part[_LONGEST_TYPED:])
            part = part[:_LONGEST_TYPED]
        text = _close_at_gaps(part)
        rest = len(text)
        for piece in _pieces(text):
            if piece.kind is _Kind.SAID and _is_given(piece.words):  # and so is the rest of this part, with its tags
                self._material.append(_without_added(text[-rest:]))
                return
            if piece.kind is _Kind.SAID and _is_notice(piece.words):
                self._added.append(text[-rest:])
                return
            self._take(piece)
            rest -= len(piece.whole)

    def reading(self) -> Reading:
        typed, is_command = self._typed()
        # The text beside a marked task holds the rules for doing it.
        beside = [piece.whole for piece in self._written] if self._held else []
        return Reading(
            typed,
            _join(self._rules),
            _join([*self._material, *beside]),
            _join(self._added),
            is_command=is_command,
            is_local=self._is_local,
        )

    def _typed(self) -> tuple[str, bool]:
        """Return the typed words, and whether they are only a command."""
        if self._held:
            return _join(self._held), False
        said = next((piece.words for piece in self._written if piece.kind is _Kind.SAID), None)
        tags = [piece for piece in self._written if piece.kind is not _Kind.SAID]
        if said is not None and not (tags and _REPORT.match(said)):
            return _join([piece.whole for piece in self._written]), False  # the author of the text wrote the tag, too
        if words := _join([_clean(piece.words) for piece in tags]):
            return words, False
        return " ".join(filter(None, self._command)), bool(self._command)

    def _take(self, piece: _Piece) -> None:
        kind, words, _ = piece
        if kind in (_Kind.COMMAND, _Kind.ARGUMENTS, _Kind.LOCAL_INPUT, _Kind.LOCAL_OUTPUT):
            self._take_command(kind, words)
        elif kind is _Kind.ADDED:
            added, rules = _split_reminder(words)
            self._added.append(added)
            self._rules += rules
        elif kind is _Kind.RULES:
            self._rules.append(words)
        elif kind in (_Kind.MATERIAL, _Kind.ATTACHED):
            self._material.append(words)
        elif self._is_prompt:
            self._added.append(words)
        elif kind is _Kind.SAID:
            self._say(words)
        elif kind is _Kind.HELD:
            self._held.append(_clean(words))
        else:
            self._written.append(piece)

    def _take_command(self, kind: _Kind, words: str) -> None:
        if kind is _Kind.ARGUMENTS:
            self._command[1:] = [words]
        elif kind is _Kind.LOCAL_OUTPUT:
            self._is_prompt = False
            self._is_local = True
            self._added.append(words)
        else:
            self._command = [words]
            self._is_prompt = self._is_prompt or kind is _Kind.COMMAND

    def _say(self, text: str) -> None:
        said = text.lstrip()
        if _RESULT.match(said):
            self._is_result = True
        if self._is_result:
            self._material.append(said)
            return
        if _INSTRUCTIONS.match(said):
            self._added.append(said)
            return
        if _EDITOR_CONTEXT.match(said) and _REQUEST in said:
            context, _, said = said.partition(_REQUEST)
            self._added.append(context)
        if said := _MARKER.sub("", said).strip():
            self._written.append(_Piece(_Kind.SAID, said, said))


def _is_notice(text: str) -> bool:
    said = text.lstrip()
    return said.startswith(_NOTICES) or _NOTICE.match(said) is not None


def _is_given(text: str) -> bool:
    said = text.lstrip()
    return said.startswith(_GIVEN) or _GIVEN_NAMED.match(said) is not None


def _read_result(text: str) -> Reading:
    """Return the text of a tool result by author; a client's additions may stand behind or inside it."""
    closed = _close_at_gaps(text)
    if _ADDED_END.search(closed) is None:
        return Reading(material=text)
    pieces = list(_pieces(closed))
    split = [_split_reminder(piece.words) for piece in pieces if piece.kind is _Kind.ADDED]
    kept = "".join(piece.whole for piece in pieces if piece.kind is not _Kind.ADDED)
    rules = [rule for _, found in split for rule in found]
    return Reading(rules=_join(rules), material=kept.strip(), added=_join([added for added, _ in split]))


def _without_added(text: str) -> str:
    """Return a text without a client's additions."""
    return _read_result(text).material


_ADDED_END = re.compile(rf"</(?:{'|'.join(_NAMES[_Kind.ADDED].split())})>")


def _split_reminder(reminder: str) -> tuple[str, list[str]]:
    """Return a reminder without the project's rules that it quotes, and those rules, file by file."""
    starts = list(_RULES_FILE.finditer(reminder))
    rules: list[str] = []
    added: list[str] = []
    done = 0
    for start, following in zip(starts, [*starts[1:], None], strict=False):
        last = following.start() if following else len(reminder)
        end = _RULES_END.search(reminder, start.end(), last)
        added.append(reminder[done : start.start()])
        done = end.start() if end else last
        rules.append(reminder[start.end() : done])
    return _join([*added, reminder[done:]]), rules


_GAP = re.compile(r"^\[… [\d,]+ characters left out …\]$", re.MULTILINE)
"""The note that a compaction leaves in a shortened message."""


def _close_at_gaps(text: str) -> str:
    """Return a shortened text with the missing ends and beginnings of clients' tags put back."""
    if "characters left out" not in text:
        return text
    closed: list[str] = []
    start = 0
    for end in [*(gap.end() for gap in _GAP.finditer(text)), len(text)]:
        opened: list[str] = []
        begun_before: list[str] = []
        for tag in _TAG.finditer(text, start, end):
            name, line_start = tag["name"], text.rfind("\n", 0, tag.start()) + 1
            if _KINDS.get(name) not in _CLOSED_AT_GAPS:
                continue
            if not tag["slash"]:
                opened += [name] if not text[line_start : tag.start()].strip() else []
            elif name in opened:
                opened.remove(name)
            elif start:
                begun_before.append(name)
        closed += [f"<{name}>" for name in reversed(begun_before)]
        closed.append(text[start:end])
        closed += [f"</{name}>" for name in reversed(opened) if end < len(text)]
        start = end
    return "".join(closed)


def _pieces(text: str) -> Iterator[_Piece]:
    """Yield the pieces of a text, split at the tags that clients use."""
    if "<" not in text:
        yield _Piece(_Kind.SAID, text, text)
        return
    tags = [tag for tag in _TAG.finditer(text) if tag["name"] in _KINDS and not tag["attributes"].endswith("/")]
    ends = Counter(tag["name"] for tag in tags if tag["slash"])
    done = place = 0
    while place < len(tags):
        tag = tags[place]
        name, kind = tag["name"], _KINDS[tag["name"]]
        if tag["slash"]:
            ends[name] -= 1
        elif ends[name] and _is_clients_tag(text, done, tag, kind):
            if between := text[done : tag.start()]:
                yield _Piece(_Kind.SAID, between, between)
            last = _end_of(tags, place)
            ends.subtract(other["name"] for other in tags[place : last + 1] if other["slash"])
            done, place = tags[last].end(), last
            yield _Piece(kind, text[tag.end() : tags[last].start()].strip(), text[tag.start() : done])
        place += 1
    if done < len(text):
        yield _Piece(_Kind.SAID, text[done:], text[done:])


def _is_clients_tag(text: str, done: int, tag: re.Match[str], kind: _Kind) -> bool:
    """Return whether a tag is a client's, not part of a sentence or of pasted code."""
    if kind in _ANYWHERE:
        return True
    start = max(done, tag.start() - _MARGIN)
    _, line_end, margin = text[start : tag.start()].rpartition("\n")
    begins_line = not margin.strip() and (line_end != "" or start == done)
    return begins_line and (kind is not _Kind.ATTACHED or _NAMED.match(tag["attributes"]) is not None)


def _end_of(tags: Sequence[re.Match[str]], start: int) -> int:
    """Return the index of the end tag of the tag at `start`, which has one.

    That is the end tag that balances the tags of the same name in between, or the last one before another tag of that
    name: the text of a block may name the block's tag without ending it.
    """
    depth = 0
    last = None
    for place in range(start, len(tags)):
        if tags[place]["name"] != tags[start]["name"]:
            continue
        if tags[place]["slash"]:
            depth -= 1
            last = place
        elif last is not None:
            break
        else:
            depth += 1
        if depth == 0:
            break
    assert last is not None  # noqa: S101 - the caller counted the ends
    return last


def _clean(text: str) -> str:
    """Return a person's words without a client's additions among them."""
    if "<" not in text:
        return text
    return _join([piece.whole for piece in _pieces(text) if piece.kind not in _LEFT_OUT])


def _join(words: Sequence[str]) -> str:
    return "\n".join(filter(None, map(str.strip, words)))


# -- titles ------------------------------------------------------------------------------------------------------------


def _title(words: str) -> str:
    """Return words in one line, cut at a word if possible."""
    seen = "".join(char if char.isprintable() else " " for char in words[: _TITLE_LENGTH * 20])
    line = " ".join(seen.split())
    if line.startswith('"') and line.endswith('"') and line.count('"') == 2:  # some clients quote the whole prompt
        line = line[1:-1].strip()
    if len(line) <= _TITLE_LENGTH:
        return line
    room = line[: _TITLE_LENGTH - 1]
    cut = room.rpartition(" ")[0]
    return f"{cut if len(cut) >= _SHORTEST_CUT else room[:-1]} …"
