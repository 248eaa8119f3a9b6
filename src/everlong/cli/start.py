"""Where the program begins: from its first moment Ctrl-C ends it quietly, with 130.

Loads next to nothing itself, so that there is hardly a moment in which Python would answer Ctrl-C with a traceback.
"""

from __future__ import annotations

import gc

__all__ = ["main"]


def main() -> None:
    """Run the program and leave with its exit code."""
    gc.set_threshold(50_000, 20, 50)  # what is loaded stays: to look through it again and again takes a tenth longer
    try:
        from everlong.cli.main import main as run  # noqa: PLC0415 - loading it takes a while, and may be interrupted

        run()
    except (KeyboardInterrupt, RuntimeError) as error:
        # While a class is made, Python before 3.12 wraps whatever happens in an error of its own.
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        import signal  # noqa: PLC0415 - as above
        import sys  # noqa: PLC0415 - as above

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses it twice is not to see how Python ends
        sys.stderr.write("everlong: interrupted\n")
        sys.exit(130)
