"""``python -m everlong``: the same program as ``everlong``."""

from everlong.cli.start import main

main()
