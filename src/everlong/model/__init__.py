"""Messages, content, groups and identity: pure values that know no database, no client and no clock."""

from everlong.model.content import (
    Part,
    is_image,
    is_reasoning,
    part_text,
    parts_of,
    text_of,
    with_content,
    with_part_appended,
)
from everlong.model.groups import Answer, Group, Grouping, find_groups
from everlong.model.identity import Block, HashChain, Node, Trace, blocks_of
from everlong.model.message import (
    EPHEMERAL,
    SYSTEM_ROLES,
    Message,
    ToolCall,
    calls_of,
    checked_messages,
    is_system,
    leading_system_count,
)
from everlong.model.traces import CLEARED_RESULT, SUMMARY_STARTS
from everlong.model.typed import (
    Reading,
    begins_with_wrapper,
    newest_request,
    read_message,
    readable_text,
    title_from,
    typed_words,
)

__all__ = [
    "CLEARED_RESULT",
    "EPHEMERAL",
    "SUMMARY_STARTS",
    "SYSTEM_ROLES",
    "Answer",
    "Block",
    "Group",
    "Grouping",
    "HashChain",
    "Message",
    "Node",
    "Part",
    "Reading",
    "ToolCall",
    "Trace",
    "begins_with_wrapper",
    "blocks_of",
    "calls_of",
    "checked_messages",
    "find_groups",
    "is_image",
    "is_reasoning",
    "is_system",
    "leading_system_count",
    "newest_request",
    "part_text",
    "parts_of",
    "read_message",
    "readable_text",
    "text_of",
    "title_from",
    "typed_words",
    "with_content",
    "with_part_appended",
]
