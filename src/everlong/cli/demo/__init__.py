"""``everlong demo``: one long session in a small window, played by three ways to deal with a full window."""
