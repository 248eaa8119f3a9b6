"""The words of a message that a person typed, told from everything else that stands in it.

Clients, harnesses and people put other words into user messages: reminders, files, results of tools, retrieved
passages, mail, logs. None of them may pass for the user's own. The reader goes by structure, and what is in doubt is
not typed:

    wrapping    from a tag at the beginning of a line, whatever its name, to the last end tag of that name
    block       from the first to the last fence; a quoted line; the lines of a log, a chat or data
    heading     "Observation:", "Forwarded message", a line in brackets, a divider that comes again; nothing behind it
                is typed
    label       any line that names a source and ends in a colon, "Fix these errors:"; the same
    notice      a text that clients and harnesses are known to write in the user's name

Tags inside a sentence (``make the <b>title</b> bold``) stay. A few tags hold a person's words; they count if nothing
but wrappings stands before them, so that no result of a tool can bring one along.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Collection, Sequence
from typing import NamedTuple

from everlong.model.content import part_text, parts_of, text_of
from everlong.model.message import ADDED, EPHEMERAL, SUMMARY_STARTS, Message

_HOLDERS = {"user_query", "user_message", "user_input", "user_command", "userrequest", "pr_description", "task"}
"""Tags that clients put around a person's words; the text beside them is the client's."""
_SAYS = r"(?:The user has provided feedback|You seem to be having)[^\n<]*+\s*+(?=<)"
_ASKED = re.compile(
    r"\s*+(?:\[(?:ask_followup_question|attempt_completion|plan_mode_respond)\b"
    rf"(?:[^\]\n]*+\] Result:\s*+(?:(?=<)|{_SAYS})|[\s\S]*\] Result:\s*+\Z)|\[TASK RESUMPTION\][^<]*+(?=<)|{_SAYS})"
)
"""A client's announcement that the tag behind it, or the next part, holds a person's answer."""
_ANSWER = re.compile(rf"(?:{_SAYS})?<(answer|feedback|user_message)>")
_EDITOR = ("# Context from my IDE", "# Files mentioned by the user", "# Selected text")
_REQUEST = "## My request for Codex:"
"""The heading of a person's words below the state of an editor."""
_ADDITIONS = re.compile(
    r"reminder|environment|notification|instructions|rules|memory|_info|\w_context|layout|diagnostics|hook|caveat|skill"
    r"|mode|^ide_|^command-|^local-command|^turn_|^everlong|_data$"
)
"""Names of tags around additions that nobody needs; what stands in other tags is material."""


def _beginnings(table: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, table.lower().replace("\n", "|").split("|"))))


_NOTICES = _beginnings("""
    Caveat: The messages below | CRITICAL: Respond with TEXT | # AGENTS.md instructions | [ERROR] You did not | [System
    [NOTE] Some previous | System: | Format error: | No tool call found | No tool calls found | Provide exactly one act
    Please always provide EXACTLY | Continue if you have next steps | Please continue working on the task
    Your output was not formatted | Your command ran successfully | The LLM did not conform | # Fix any errors
    I did `git reset | Here are summaries of some files | I am working with you on code | I am not sharing any files
    I switched to a new code base | Don't try and edit any existing code | This is the Gemini CLI | This is the Qwen
    Base directory for this skill: | Stop hook feedback: | Another Claude session sent a message:
""")
"""The beginnings of texts of a client's or harness's own: orders, listings, complaints about an answer."""
_OTHERS = tuple(map(str.lower, SUMMARY_STARTS)) + _beginnings("""
    This session is being continued | Another language model started | The conversation history before this point
    I spoke to you previously | Here are some READ ONLY files | I have *added these files | I added these files to the
    Called the Read tool | Called the List tool | Read tool failed | Reading MCP resource | Context information is below
    The code above was executed | The original query is as follows | This is a Enriched Context Generation scenario
    The following content was found in | The following citations were found in
""")
"""The beginnings of texts in which other words are repeated: summaries, files, results, passages, data."""
_THING = (
    r"(?:chunks?|contexts?|documents?|excerpts?|knowledge|logs?|outputs?|passages?|references?|responses?|results?"
    r"|snippets?|sources?|stack ?trace|stderr|stdout)"
)
"""The nouns that name the result of a tool or a search."""
_REPEATS = re.compile(
    r"[^\n]{0,80}\b(?:following|retrieved|provided)(?: \w+){0,3} (?:context|passages|excerpts|search results)\b"
    r"|#{0,2} ?(?:conversation|session) summary|(?:the following|here) is (?:a|the) summary|summary of the conversation"
    rf"|ran `[^\n]*+\n|\[\s*+[\[{{\"]|{_THING}:"
)
"""The same for prompts that bring passages along, for shell lines, and for lists of data."""
_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", "\n"),
        **dict.fromkeys("\xa0\xad\u1680\u202f\u205f\u3000\ufeff", " "),
        **{
            chr(code): " "
            for begin, end in ((0x2000, 0x2010), (0x202A, 0x202F), (0x2060, 0x2070))
            for code in range(begin, end)
        },
        **dict(zip("＜＞：【】［］｜▁", "<>:[][]|_", strict=True)),
    }
)
"""Characters that break a line, cannot be seen or look like others, and what they are read as."""

_LINE = r"(?<![^\n])[ \t]*+"
"""The beginning of a line, with its indentation."""
_END = r"[ \t*_]*+(?![^\n])"
_PARAGRAPH = r"(?:[^\n]++|\n(?![ \t]*+(?:\n|\Z)))*+"
_NAME = r"(?:[^\W\d]|\|)[\w.:|-]*+"
_OPEN = re.compile(rf"{_LINE}<++({_NAME})(?=[\s>])")
_CLOSE = re.compile(rf"</({_NAME})")
_SUBJECT = r"(?:fwd?|subject|betreff|asunto|objet|тема|主题|件名)"
SOURCE = (
    rf"(?:\b(?:{_THING}|articles?|command|contents?|e-?mails?|errors?|files?|history|information|messages?|observations?"
    r"|pages?|screen(?:shot)?|state|summary|terminal|tool|transcripts?|website|got|printed|produced|replied|returned|said"
    r"|says|wrote|ergebnis|ausgabe|inhalt|datei|r[ée]sultats?|sortie|contenus?|fichier|resultados?|salida|contenido"
    r"|archivo)\b|结果|输出|内容|文件|出力|結果|результат|вывод|файл)"
)
"""Words for what is put into a message: the thing, where it stood, or how it came."""
_LABEL = rf"(?=[^\n]{{1,200}}:{_END})(?:[^\n]*[.!?] )?+[^\n]*?{SOURCE}[^\n]*+"
"""A line whose last sentence announces such words: "The tool returned:", "Fix these errors:"."""
_WHICH = r"(?: (?:by|for|from|of) [^\n:]{1,80}| ?[\[(#][^\n\])]{0,80}[\])]?| ?\d+)?"
_HEADINGS = (
    # results of tools
    rf"(?:exit (?:code|status) \d+|stdout|stderr|(?:begin|end)[ _](?:file|{_THING})\b[^\n]{{0,80}}){_END}"
    r"|(?:exit ?code|\[[^\]\n]{1,300}\] result|execution result of [^\n:]{1,80}"
    rf"|command [\w.-]{{1,80}} returned|tool [\w.`'\"-]{{1,80}}|context)\s*+:|observation(?:\s*+:|{_END})"
    r"|\[/?(?:tool|inst|quote)|\[\w+ for '",
    r"(?:action|api|bash|browser|code|command|console|execution|function|page|python|query|retrieval|screenshot|script"
    rf"|search|shell|step \d+|terminal|test|tool|web)[ _-](?:call[ _-])?(?:{_THING}|text){_WHICH}(?:\s*+:|{_END})",
    rf"{_THING}(?:(?=[ \[(#\d]){_WHICH}(?:\s*+:|{_END})|:{_END})"
    rf"|(?:i ran this command|(?:retrieved|contents? (?:of|from)) [^\n]{{1,80}}?):{_END}",
    r"(?:here(?:'s| is| are)|this is)[^\n:]{0,40} (?:contents?|e-?mail|errors?|messages?|transcript"
    rf"|{_THING})\b[^\n]{{0,120}}?:{_END}|[^\n:]{{0,20}}(?:结果|输出|結果|出力):",
    # passages and pastes
    rf"\[(?:(?!…|i have edited|image|message of|request interrupted)[^\]\n]*+\]?\]{_END}"
    rf"|(?=[^\]\n]*+\]:)[^\]\n]*?{SOURCE}[^\]\n]*+\]:)",
    r"[-=]{3,} ?\w[^\n]{2,80}? ?[-=]{3,}|(?:agent|ai|assistant|bot|model|system|tool)\*{0,2}:",
    rf"#{{0,4}} ?(?:current )?(?:document|file|page|path|url)(?:name|path)?: ?\S++{_END}"
    rf"|(?:#{{1,6}} ?|\*\*|`)(?:https?://\S++|[\w./-]+\.\w{{1,8}}[`*]*+:?){_END}|[\w./-]+\.\w{{1,8}}(?::{_END}|\n---{_END})",
    r"traceback \(most|diff --git |--- [^\n]+\n\+\+\+ |commit [0-9a-f]{7,40}\b"
    r"|(?:\$|❯|➜|(?:in|out) ?\[\d+\]:|ps [a-z]:\\[^\n>]*+>|[\w.-]{1,40}@[\w.-]{1,40}:[^\n$#]{0,80}[$#]) ",
    # summaries of ours
    r"standing rules of the user, in force|## (?:constraints & preferences|pending user asks|critical context)",
    # mail and chats
    r"begin forwarded message:"
    r"|(?:on|am|le|el) [^\n]{1,200}(?:wrote|schrieb|a écrit|escribió)[^\n]{0,80}:(?!\s*+>)",
    rf"[^\n\[]{{1,60}}(?:, \[\d[^\]\n]{{4,30}}\]|(?: — [^\n]{{0,20}}|  \d?)\d:\d\d[ apm]*+){_END}"
    rf"|\d{{1,2}}:\d\d(?: ?[ap]m)?(?:{_END}| <)|\[\d[\d:.,/ -]*+[^\]\n]{{0,20}}\]"
    r"|\d\d?[/.]\d\d?[/.]\d{2,4},? \d\d?:\d\d",
    rf"{_SUBJECT} ?:|(?:(?:from|to|cc|date|sent|von|an|datum|gesendet|de|para|envoyé|à|от|发件人|差出人|title|url"
    rf"|link|state|author|labels|url source|{_SUBJECT}) ?:[^\n]*+\n\s*+){{2}}",
)
"""Lines behind which nothing is typed."""
_MARK = re.compile(
    rf"(?P<fence>```|(?:\"\"\"|''')(?=\n))|(?P<stray></{_NAME}\s*+>{_END})|{_LINE}(?=\S)(?:(?P<stray_line></{_NAME})"
    rf"|(?P<tilde>~~~|\"\"\"|''')|(?P<divider>(?P<char>[-=*#_+%])(?P=char){{2,}}+{_END})"
    rf"|(?:[^\w\s<\[]{{1,6}}+[ \t]*+)??(?P<rest>(?i:{'|'.join(_HEADINGS)}))|(?P<label>(?i:{_LABEL}))"
    rf"|(?P<piece><!--(?:(?!-->)[\s\S])*+(?:-->)?|<[!?][^>]*+>?|>[^\n]*+|\[[^\]\n]*+\]{_END}"
    r"|(?:\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:|\d\d:\d\d:\d\d|(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)[\]:])"
    r"|\d++(?:\t|→| ?[|│])|[\w./-]++:\d++:|\{|\w*Error:)"
    rf"{_PARAGRAPH})"
    rf"|<++(?P<block>{_NAME})(?=[\s>]|/>|\Z))|<(?P<inline>{_NAME})(?=[\s>])"
)
_LONGEST_TYPED = 1_000_000
"""Characters of a message that are looked at; a part that reaches beyond is not typed."""
_MOST_MARKS = 10_000
"""Marks that are looked at in one text; nobody types so many."""
_STEP, _AHEAD = 4_000, 1_000
"""Characters in which the next mark begins that is looked for at once, and those behind them that it may take."""
_LONGEST_INLINE = 30
"""Characters between the name of a tag and its end tag that may be part of a sentence."""


class Reading(NamedTuple):
    """The text of a message by author."""

    typed: str = ""
    """The words that a person typed: slices of the text with a blank line between them; a slash command counts."""
    material: str = ""
    """Files, results of tools, quotations and summaries; the whole text of a message that is not the user's."""
    added: str = ""
    """The client's additions that nobody needs: reminders, listings, the state of an editor."""
    is_command: bool = False
    """True if nothing but a command was typed."""
    is_local: bool = False
    """True if the message reports a command that the client ran itself."""

    @property
    def text(self) -> str:
        """All text that is worth reading, typed words first."""
        return "\n".join(filter(None, (self.typed, self.material)))


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
    parts = [part for part in parts_of(message) if part_text(part) and not part.get(EPHEMERAL)]
    return _MessageReader([*map(part_text, parts)], [bool(part.get(ADDED)) for part in parts]).read()


def typed_words(message: Message) -> str:
    """Return the words that a person typed in a user message; empty for other messages and without typed words.

    A slash command counts as typed, with its arguments; the prompt that the client puts in its place does not.
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
    """Return whether a text begins with a tag or mark, or as clients and harnesses write in a user's name."""
    said = _beginning(_plain(text))
    mark = _MARK.match(said)
    is_marked = mark is not None and (mark["block"] or mark["rest"] or mark["piece"])
    return bool(is_marked or said.startswith(_NOTICES + _OTHERS) or _REPEATS.match(said))


class _MessageReader:
    """Reads the text parts of one user message."""

    def __init__(self, texts: Sequence[str], are_added: Sequence[bool]) -> None:
        self._texts, self._are_added = texts, are_added
        self._last_ends = {end[1].lower(): at for at, text in enumerate(texts[1:], 1) for end in _CLOSE.finditer(text)}
        """The number of the last part with an end tag, by the tag's name."""
        self._covered = -1
        """The number of the last part that is not typed, whatever it says."""
        self._said: list[str] = []
        self._held: list[str] | None = None
        """A person's words out of a client's tag; None without such a tag."""
        self._command: list[str] = []
        """The newest command: its name, and its arguments."""
        self._material: list[str] = []
        self._added: list[str] = []
        self._is_prompt = self._is_local = False

    def read(self) -> Reading:
        """Return the whole message by author."""
        left = _LONGEST_TYPED
        for at, text in enumerate(self._texts):
            left -= len(text)
            if at <= self._covered or left < 0:
                self._material.append(text)
            elif self._are_added[at]:
                self._material += self._slices(text, is_part=True, may_hold=False)
            elif not self._is_prompt and (asked := _ASKED.match(text)):
                self._added.append(asked[0])
                self._take_answer(text[asked.end() :] or "".join(self._texts[at + 1 : at + 2]))
            else:
                if text.lstrip().startswith(_EDITOR):
                    asks = text.rfind(_REQUEST)
                    self._added.append(text[:asks] if asks >= 0 else text)
                    text = text[asks + len(_REQUEST) :] if asks >= 0 else ""  # noqa: PLW2901 - the rest is typed
                # The prompt of a command comes from a file, in the parts behind the one that names the command.
                slices = self._slices(text, is_part=True, may_hold=not self._is_prompt)
                (self._added if self._is_prompt else self._said).extend(slices)
        self._material += [] if self._held is None else self._said
        typed = _join(self._said if self._held is None else self._held)
        is_command = not typed and bool(self._command)
        typed = " ".join(filter(None, self._command)) if is_command else typed
        return Reading(typed, _join(self._material), _join(self._added), is_command, self._is_local)

    def _take_answer(self, text: str) -> None:
        """Take the answer of the person whom a client asked; nothing else in the message is theirs."""
        tag = _ANSWER.match(text)
        if tag and text[(end := text.rfind(f"</{tag[1]}")) :].strip() == f"</{tag[1]}>":
            self._held = self._slices_in(tag[1], text[tag.end() : end])
        else:
            self._material.append(text)
        self._covered = len(self._texts)

    def _slices(self, text: str, *, is_part: bool = False, may_hold: bool = False) -> list[str]:
        """Return the typed slices of a text; in a whole part there may be notices, and tags that hold words."""
        ends: dict[str, list[int]] = {}
        plain = _plain(text)
        for end in _CLOSE.finditer(plain):
            ends.setdefault(end[1].lower(), []).append(end.start())
        slices: list[str] = []
        done = at = 0
        for _ in range(_MOST_MARKS):
            if is_part and not slices and at == done and self._is_notice(text, plain, done):
                return []
            mark = _next_mark(plain, at, len(plain))
            if mark and (is_typed := _end_in_sentence(mark, ends)):
                at = is_typed
                continue
            said = text[done : mark.end() if mark["label"] else mark.start()] if mark else text[done:]
            slices += [said] if said.strip() else []
            if mark is None:
                return slices
            if mark["stray"] or mark["stray_line"]:  # it ends what began elsewhere
                self._material += [*slices, text[mark.start() :]]
                return []
            if mark["block"] or mark["inline"]:
                is_first = not slices and not self._said and self._held is None
                done = at = self._pass_tag(text, mark, ends, may_hold=may_hold and is_first)
            else:
                done = at = self._pass_block(text, mark, ends)
            if _has_heading(plain, _first_end(mark, ends), done):
                self._covered = len(self._texts)
                break
        self._material.append(text[done:])
        return slices

    def _slices_in(self, name: str, words: str) -> list[str]:
        """Return the typed slices of what a tag holds; none if it ends amid them, because somebody else may go on."""
        slices = self._slices(words)
        return [] if any(f"</{name}" in _plain(one).lower() for one in slices) else slices

    def _is_notice(self, text: str, plain: str, start: int) -> bool:
        """Return whether the rest of a part is a text that no person writes, and keep it."""
        said = _beginning(plain, start)
        if said.startswith(_NOTICES):
            self._is_local |= said.startswith(_NOTICES[0])
            self._added.append(text[start:])
        elif said.startswith(_OTHERS) or _REPEATS.match(said) or text.endswith("bash-$"):
            self._material.append(text[start:])
        else:
            return False
        return True

    def _pass_block(self, text: str, mark: re.Match[str], ends: dict[str, list[int]]) -> int:
        """Keep what a mark that is no tag stands for, and return where it ends."""
        start, end = mark.start(), mark.end()
        if mark["label"]:  # a person may have typed it, but nothing behind it
            start = end
        if mark["rest"] or mark["label"] or mark["divider"]:
            end = len(text)
            self._covered = len(self._texts)
        elif fence := mark["fence"] or mark["tilde"]:
            last = text.rfind(fence, end)
            end = last + len(fence) if last >= 0 else len(text)
            if last < 0:
                self._covered = max(self._covered, *(at for at, other in enumerate(self._texts) if fence in other))
        at = mark.start()
        while tag := _OPEN.search(mark.string, at, end):  # it does not end inside of a wrapping
            at, end = tag.end(), max(end, ends.get(tag[1].lower(), [0])[-1])
        is_bracketed = mark["piece"] is not None and mark["piece"].startswith("[")
        (self._added if is_bracketed else self._material).append(text[start:end])
        return end

    def _pass_tag(self, text: str, mark: re.Match[str], ends: dict[str, list[int]], *, may_hold: bool) -> int:
        """Keep what a tag is around, and return where it ends."""
        plain, name = mark.string, (mark["block"] or mark["inline"]).lower()
        begins, last = plain.find(">", mark.end()), ends.get(name, [-1])[-1]
        if last < mark.end():
            if begins >= 0 and plain[begins - 1] == "/":
                return begins + 1
            self._covered = max(self._covered, self._last_ends.get(name, -1))
            self._material.append(text[mark.start() :])
            return len(text)
        words = text[begins + 1 if begins < last else mark.end() : last]
        self._is_local |= name.startswith(("local-command", "bash-std"))
        if may_hold and name in _HOLDERS:
            self._held = self._slices_in(name, words)
        elif may_hold and name in ("command-name", "bash-input"):
            self._command = [_join(self._slices_in(name, words))]
            self._is_prompt = name == "command-name" and not self._is_local
        elif may_hold and name == "command-args" and self._command:
            self._command[1:] = [_join(self._slices_in(name, words))]
        else:
            (self._added if _ADDITIONS.search(name) else self._material).append(words)
        return plain.find(">", last) + 1 or len(text)


def _plain(text: str) -> str:
    """Return a text of the same length with plain line breaks, spaces and brackets."""
    return text.replace("\r\n", " \n").translate(_ALIKE)


def _beginning(text: str, start: int = 0) -> str:
    """Return the first words of a text from a place on, in small letters."""
    return text[start : start + 4_000].lstrip()[:200].lower()


def _first_end(mark: re.Match[str], ends: dict[str, list[int]]) -> int:
    """Return where a block may have ended for the first time; somebody else may have written its last end."""
    text, at = mark.string, mark.end()
    if name := mark["block"] or mark["inline"]:
        closes = ends.get(name.lower(), ())
        return next(iter(closes[bisect(closes, at) :]), len(text))
    fence = mark["fence"] or mark["tilde"]
    found = text.find(fence, at) if fence else text.find("\n", mark.start())
    return found if found >= 0 else len(text)


def _has_heading(text: str, start: int, end: int) -> bool:
    """Return whether a line behind which nothing is typed stands in a piece of a text."""
    while mark := _next_mark(text, start, end):
        if mark["rest"] or mark["label"]:
            return True
        start = mark.end()
    return False


def _next_mark(text: str, at: int, end: int) -> re.Match[str] | None:
    """Return the next mark in a piece of a text, some lines at a time: no other thread runs during a search."""
    while at < end:
        cut = text.find("\n", min(at + _STEP, end), end) + 1 or end
        stop = text.find("\n", min(cut + _AHEAD, end), end) + 1 or end
        mark = _MARK.search(text, at, stop)
        if mark and mark.start() < cut:
            return _MARK.search(text, mark.start(), end)
        at = cut
    return None


def _end_in_sentence(mark: re.Match[str], ends: dict[str, list[int]]) -> int:
    """Return where a mark that is part of a sentence ends: a lone divider, a tag without an end or around a few words.

    0 for every other mark.
    """
    text, at = mark.string, mark.end()
    if mark["divider"]:
        return at if text.find(mark["divider"][:3], at) < 0 else 0
    if not mark["inline"]:
        return 0
    name = mark["inline"].lower()
    closes = ends.get(name, ())
    following = bisect(closes, mark.start())
    if following == len(closes):
        return at
    words = text[at : min(closes[following], at + _LONGEST_INLINE + 1)]
    is_short = len(words) <= _LONGEST_INLINE and words.isprintable() and "-" not in name and "_" not in name
    return closes[following] + len(name) + 3 if is_short else 0


_REMINDER = re.compile(r"<(system[-_]reminder)>")


def _read_result(text: str) -> Reading:
    """Return the text of a tool result by author; clients put reminders behind or into it."""
    if "<system" not in text:
        return Reading(material=text)
    kept: list[str] = []
    added: list[str] = []
    done = 0
    while (tag := _REMINDER.search(text, done)) and (end := text.find(f"</{tag[1]}>", tag.end())) >= 0:
        kept.append(text[done : tag.start()])
        added.append(text[tag.end() : end])
        done = end + len(tag[0]) + 1
    return Reading(material="".join([*kept, text[done:]]).strip() if added else text, added=_join(added))


def without_reminders(text: str) -> str:
    """Return a text without what a client added to it for its model, and nobody said."""
    return _read_result(text).material


def _join(words: Sequence[str]) -> str:
    """Return slices as one text; the blank lines keep a sentence from reaching over a gap."""
    return "\n\n".join(filter(None, map(str.strip, words)))


# -- titles ------------------------------------------------------------------------------------------------------------

_TITLE_LENGTH = 60
_SHORTEST_CUT = 20
"""The least length of a title that is cut between words; a shorter one is cut inside a word."""


def title_from(messages: Sequence[Message]) -> str | None:
    """Return a title of at most 60 characters from the newest user message with typed words; None without one.

    Pass the messages of a conversation's opening request: clients send examples, file listings and context first and
    the question last. Of a longer transcript, pass the messages before the first answer.
    """
    return next(filter(None, (_title(typed_words(message)) for message in reversed(messages))), None)


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
