"""Records a chat of the real program in a terminal, for the documentation: ``python -m bench.record_chat``."""
