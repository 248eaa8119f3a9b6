"""The clients that Everlong knows: the file of each, and the settings in it that lead its requests to the gateway.

`everlong.cli.setup` writes them; `everlong.cli.wrap` runs a client with the same settings for one run.
"""
