"""The slash commands that the terminal's chat and channels share.

Each is a function of the `Desk` and the words after its name. The chat imports them before it shows its prompt, so a
command imports what is heavy when it runs.
"""
