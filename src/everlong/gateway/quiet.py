"""What the HTTP server says about requests that it cannot read: that there were some, never what stood in them."""

from __future__ import annotations

import logging

__all__ = ["server_logger"]


class _WithoutWords(logging.Filter):
    """Takes what was sent out of a record; the kind of an error is enough to look for it."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__name__ if error is not None else "no error"
        record.msg, record.args = f"a request could not be served ({kind})", None
        record.exc_info = record.exc_text = None
        return True


def server_logger() -> logging.Logger:
    """A logger for the HTTP server, whose own would write down pieces of requests."""
    logger = logging.getLogger("everlong.gateway.http")
    if not any(isinstance(one, _WithoutWords) for one in logger.filters):
        logger.addFilter(_WithoutWords())
    return logger
