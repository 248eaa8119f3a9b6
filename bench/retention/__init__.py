"""Retention: how much of what a conversation goes on to need is still there after a compaction.

Run with ``python -m bench.retention``. The measures, in the order in which they are defined:

    texts.py      what a message says, and where it says it
    entities.py   what counts as a path, a name, an id, a number; the engine has rules of its own
    words.py      what counts as a plain word
    facts.py      which of them the later turns of a conversation need, and in whose company
    measures.py   what a compacted context still holds of that
    validity.py   whether a compacted context may be sent to a model at all
    methods.py    who compacts: the engine, and simple recipes to compare it with
    trials.py     one conversation through all of it
    summary.py    means and intervals over conversations
    report.py     tables, lost facts, JSON
"""
