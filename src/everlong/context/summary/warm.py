"""A summarizer that rides the warm prefix of the main model, so that it reads the conversation from the cache.

Sends the messages exactly as they were sent before, up to the cut, and one final message with the template. Nothing is
redacted or escaped in what the model has already read; what is added is. Needs the prefix to fit the window: a longer
conversation is another summarizer's business.
"""

from __future__ import annotations

from everlong.context.summarize import SummaryRequest, Weakness
from everlong.context.summary.completion import checked_window
from everlong.context.summary.parts import Complete
from everlong.context.summary.prompt import warm_prompt
from everlong.errors import SummarizerError
from everlong.model import Message, text_of


class WarmPrefixSummarizer:
    """Summarizes with the main model itself, behind a plain function.

    ``complete`` must send the same model, tools and settings as the conversation's own requests, or the cache is cold.
    """

    def __init__(self, complete: Complete, *, window: int = 200_000, name: str = "main model") -> None:
        checked_window(window)
        self._complete = complete
        self._window = window
        self._name = name

    @property
    def name(self) -> str:
        """How reports call this summarizer."""
        return self._name

    def summarize(self, request: SummaryRequest) -> str:
        """The main model's summary of everything up to the cut."""
        return self._asked(request, warm_prompt(request, request.budget_tokens))

    def mend(self, request: SummaryRequest, draft: str, weakness: Weakness) -> str:
        """A second draft of a weak summary, with the conversation still in front of the model."""
        return self._asked(request, warm_prompt(request, request.budget_tokens, draft, weakness))

    def _asked(self, request: SummaryRequest, prompt: list[Message]) -> str:
        if not request.prefix:
            raise SummarizerError("there is no conversation as sent to ride on; give the request a prefix")
        sent = request.prefix_tokens or sum(request.count(text_of(message)) + 8 for message in request.prefix)
        needed = sent + request.count(text_of(prompt[-1])[-20_000:]) + request.budget_tokens
        if needed > self._window:
            raise SummarizerError(
                f"the conversation up to the cut needs {needed:,} of a window of {self._window:,} tokens; "
                "chain a CompletionSummarizer behind this one, which reads in parts"
            )
        return self._complete(prompt, request.budget_tokens)
