"""What the real APIs refuse, for the model server of our own tests and benchmarks.

Written from the APIs' documentation, apart from the code that makes requests. `install_rules` makes every `ModelServer`
of this process refuse it, in the words of the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everlong.testing import ModelServer
from everlong.testing.server.exchange import Api
from tests.api_rules.anthropic import check_anthropic
from tests.api_rules.openai import check_openai
from tests.api_rules.responses import check_responses

__all__ = ["install_rules"]


def install_rules() -> None:
    """Have every model server of this process check requests by the rules of its API."""
    ModelServer.check_body = _check_body  # type: ignore[method-assign]


def _check_body(self: ModelServer, api: Api, body: Any, headers: Mapping[str, str], *, counting: bool = False) -> None:
    if api == "anthropic":
        betas = headers.get("anthropic-beta", "")
        check_anthropic(body, betas=betas, counting=counting, alternate_roles=self.alternate_roles)
    elif api == "responses":
        check_responses(body, self.dialect, knows_compaction=self.knows_compaction)
    else:
        check_openai(body, self.dialect)
