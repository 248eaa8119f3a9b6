"""The agent: a model that works with tools, in sessions that outlast its context window."""
