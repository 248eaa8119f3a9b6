"""The public benchmark: Everlong beside other packages, each the real one behind one small adapter.

    python -m bench.public [--data FOLDER]… [--write] [--parts keeping,chats,…]

stub.py        the model that every package gets: it copies the lines that say most
protocol.py    JSON lines between the benchmark and an adapter in an environment of its own
adapters/      one small file for each package
processes.py   work in several processes, each with adapters of its own
peers.py       which packages, their processes, and how a result is brought to the size that all get
keeping.py     needed facts, alone, with context and far; chains; validity
chats.py       standing rules, preferences and facts of long chats
cost.py        CPU of a compaction; input cost of whole sessions with a prompt cache
retrieval.py   search beside BM25 and MiniLM
gateways.py    the gateway beside LiteLLM and headroom
page.py        docs/benchmark.md from the stored results; plots.py: its pictures
"""
