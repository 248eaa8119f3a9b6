"""Plugins: other people's context engines, commands, tools and memory providers.

Knows folders, packages and what they register; knows nothing of the agent, the chat or the command line.
"""
