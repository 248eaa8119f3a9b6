"""The store of conversations: a tree of messages in a database, views over it, sessions and search.

Loaded only where it is used: neither ``import everlong`` nor a compaction opens a database.
"""

from everlong.store.compaction import Compacted, Compaction, Occasion
from everlong.store.conversations import Conversation
from everlong.store.opening import open_store
from everlong.store.sessions import Session
from everlong.store.store import Store
from everlong.store.tree import Branch
from everlong.store.turns import Turn

__all__ = ["Branch", "Compacted", "Compaction", "Conversation", "Occasion", "Session", "Store", "Turn", "open_store"]
