"""The server of the Model Context Protocol: other agents search, read and continue the conversations of the store.

`everlong.mcp.history` has the answers, `everlong.mcp.server` the tools, which need the package
``mcp`` (extra ``mcp``). A client waits for the server to start, so the store is loaded only when somebody asks for
something.
"""
