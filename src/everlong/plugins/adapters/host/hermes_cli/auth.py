"""The providers that are known by name."""

from __future__ import annotations

from everlong.providers.endpoints import ENDPOINTS

__all__ = ["PROVIDER_REGISTRY"]

PROVIDER_REGISTRY = ENDPOINTS
