"""The chat: a terminal on the agent, with a view into its context."""
