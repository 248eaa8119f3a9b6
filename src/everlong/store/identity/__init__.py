"""Identity: a list of messages arrives; which conversation is it, which of its messages are stored, and what is new?

`Identity.place` answers for requests of clients that send their history each time. In this order:

1. The hash chain leads to the deepest stored message (`known_messages`).
2. Where the client has rewritten its words, a reply that it repeats leads on (`known_messages`, `rewrites`).
3. Of several conversations that begin so, the name, the system prompt and the replies choose one (`choice`).
4. A list without old tool results is the same conversation on another branch (`cleared_results`).
5. Anything else is a fork, or a conversation of its own.

`Identity.resolve` answers for lists that are recorded or imported without a name, by the first two steps.
`placing` stores what a model answers, and `replies` links it with its echo. A host that knows its conversation by
name appends to it and asks nothing here.
"""

from everlong.store.identity.choice import LONG_STEM
from everlong.store.identity.placing import Identity, PlacedRequest, Sender, StatelessRequest

__all__ = ["LONG_STEM", "Identity", "PlacedRequest", "Sender", "StatelessRequest"]
