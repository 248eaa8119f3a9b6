"""Tools of the agent: how they are made, what confines them, and those that come with it."""
