"""The store of conversations: a tree of messages in a database, views over it, sessions and search.

Loaded only where it is used: neither ``import everlong`` nor a compaction opens a database, and a process that only
packs messages (`everlong.store.packing`) loads none.
"""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.store.compaction import Compacted as Compacted, Compaction as Compaction, Occasion as Occasion
    from everlong.store.conversations import Conversation as Conversation
    from everlong.store.sessions import Session as Session
    from everlong.store.store import Store as Store, open_store as open_store
    from everlong.store.tree import Branch as Branch
    from everlong.store.turns import Turn as Turn

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "compaction": "Compacted Compaction Occasion",
        "conversations": "Conversation",
        "sessions": "Session",
        "store": "Store open_store",
        "tree": "Branch",
        "turns": "Turn",
    },
)
