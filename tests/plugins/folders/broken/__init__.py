"""Cannot be imported."""

from .missing_part import Engine  # noqa: F401
