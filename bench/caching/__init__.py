"""The cost of prompt caching, by the providers' published rules.

Run with ``python -m bench.caching``. Sessions are made up from seeds; costs are in units of one fresh input token.

    placement.py   markers against the oracle: serial, mixed and wide sessions, forks and rewinds, fan-outs
    speed.py       placing the markers of a long conversation's next request
"""
