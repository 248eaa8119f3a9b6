"""The entry point of the program: Ctrl-C ends it quietly with 130, from the first moment.

It imports next to nothing itself, so that Python can hardly answer Ctrl-C with a traceback.
"""

from __future__ import annotations

import gc


def main() -> None:
    """Run the program and exit with its code."""
    gc.set_threshold(50_000, 20, 50)  # loaded modules stay: collecting them again and again takes 10 % longer
    try:
        from everlong.cli.main import main as run  # noqa: PLC0415 - loading it takes a while, and may be interrupted

        run()
    except (KeyboardInterrupt, RuntimeError) as error:
        # Python before 3.12 wraps an exception in a RuntimeError if it happens while a class is created.
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        import signal  # noqa: PLC0415 - needed only here
        import sys  # noqa: PLC0415 - as above

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not show how Python ends
        sys.stderr.write("everlong: interrupted\n")
        sys.exit(130)
