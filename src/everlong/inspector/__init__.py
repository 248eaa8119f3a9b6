"""The inspector: a web page over a store that shows what a model gets, what was cut, and what it cost.

`everlong.inspector.pages` reads the store into plain values, one module for each page; `handlers` answers requests with
them; `app` wires both behind the checks of `security`. Loaded only by ``everlong inspect --web`` and its process.
"""
