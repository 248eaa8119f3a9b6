"""Summaries of recorded conversations that quote what a client wrapped around a person's words; there must be none.

    python -m bench.summaries.wrappers [--data FOLDER] [--show]

Compacts every conversation at several points and to several sizes, each time again after the result, and looks in every
summary for tags and notices of clients and for sentences that stand nowhere but in what a client added. Goal and newest
request must be words that a person typed. Ends with 1 where anything was found.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.retention.data import CUTS, Conversation, cuts, load, shipped
from everlong.context import ContextCompressor
from everlong.context.document import SummaryDocument
from everlong.context.literals import is_summary, summary_body
from everlong.context.text import one_line
from everlong.errors import TargetUnreachable
from everlong.model import Message, calls_of, leading_system_count, read_message, typed_words

WINDOW = 200_000
SHARES = (0.1, 0.25, 0.5)
"""The shares of a conversation's tokens that a compaction may keep."""
_TAG = re.compile(
    r"</?(?:system-reminder|ide_\w+|command-(?:name|message|args)|local-command-\w+|bash-(?:input|stdout|stderr)"
    r"|environment_(?:context|details)|user_instructions|INSTRUCTIONS|task-notification|file_content)\b"
    r"|\[Request interrupted by user"
)
_SENTENCE = re.compile(r"[^\n.!?]{24,}[.!?]?")
_COMPARED, _TAG_COMPARED = 60, 24
"""Characters by which words, and what follows a tag, are found again."""


class Fault(NamedTuple):
    """Something in a summary that no person and no tool said."""

    kind: str
    conversation: str
    words: str


def main() -> int:
    """Look through all summaries and print what was found."""
    parser = argparse.ArgumentParser(description="Look for clients' wrappers in summaries of real conversations.")
    parser.add_argument("--data", type=Path, help="a folder of *.jsonl transcripts")
    parser.add_argument("--show", action="store_true", help="print every fault, and each summary's goal")
    options = parser.parse_args()
    conversations = load(options.data)
    if not conversations:
        print("wrappers: no conversations in *.jsonl files of --data; using the shipped session", file=sys.stderr)
        conversations = shipped()
    summaries, faulty, wrapped = 0, 0, 0
    kinds: Counter[str] = Counter()
    for conversation in conversations:
        wrapped += any(read_message(m).added for m in conversation.messages if m["role"] in ("user", "tool"))
        for source, document in _summaries(conversation):
            found = list(find_faults(conversation.name, source, document))
            summaries += 1
            faulty += bool(found)
            kinds.update({fault.kind for fault in found})
            if options.show:
                print(f"{conversation.name}: {document.items['Goal']} {document.items['Pending User Asks'][:1]}")
                for fault in found:
                    print(f"  {fault.kind}: {fault.words}")
    told = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    print(f"{len(conversations)} conversations ({wrapped} with wrappers), {summaries} summaries")
    print(f"summaries with a fault: {faulty}{f' ({told})' if told else ''}")
    return 1 if faulty else 0


def _summaries(conversation: Conversation) -> Iterator[tuple[list[Message], SummaryDocument]]:
    """Yield each summary with the messages that it may draw on."""
    messages = conversation.messages
    for cut in (*cuts(messages, CUTS), len(messages)):
        for share in SHARES:
            engine = ContextCompressor(WINDOW)
            room = int(share * engine.estimate_tokens(messages[:cut]))
            system = engine.estimate_tokens(messages[: leading_system_count(messages)])
            context, following = messages[:cut], messages[cut : cut + 20]
            for _ in range(2):  # the second continues the first one's summary
                try:
                    context = engine.compress(context, target_tokens=room + system)
                except TargetUnreachable:
                    break
                written = next((message for message in context if is_summary(message)), None)
                if written is None:
                    break
                yield messages[: cut + len(following)], SummaryDocument.parse(summary_body(written))
                context = [*context, *following]


def find_faults(name: str, source: Sequence[Message], document: SummaryDocument) -> Iterator[Fault]:
    """Return what stands in a summary of these messages that no person and no tool said."""
    text = document.render()
    own = one_line("\n".join(_own_words(source)))
    for mark in _TAG.finditer(text):
        around = one_line(text[mark.start() :].partition("\n")[0][:_TAG_COMPARED])
        if around not in own:
            yield Fault("tag", name, around)
    flat = one_line(text)
    for message in source:
        for sentence in _SENTENCE.findall(read_message(message).added) if message["role"] in ("user", "tool") else ():
            words = one_line(sentence)
            if words in flat and words not in own:
                yield Fault("sentence", name, words)
    typed = one_line("\n".join(typed_words(message) for message in source))
    newest = [item for item in document.items["Pending User Asks"] if item.startswith("- Newest request")]
    for kind, items in (("goal", document.items["Goal"]), ("newest request", newest)):
        for item in items:
            quoted = one_line(item).partition('"')[2].rpartition('"')[0] or item.removeprefix("- ")
            if not item.endswith(": the goal") and quoted.rstrip(" …")[:_COMPARED].rstrip() not in typed:
                yield Fault(kind, name, item)


def _own_words(source: Sequence[Message]) -> Iterator[str]:
    """Yield what people, models and tools said."""
    for message in source:
        yield read_message(message).text
        yield from (call.arguments for call in calls_of(message))


if __name__ == "__main__":
    sys.exit(main())
