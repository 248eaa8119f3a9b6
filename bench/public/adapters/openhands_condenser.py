"""The LLMSummarizingCondenser of the OpenHands SDK, on events made from the messages."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from bench.public.protocol import Job, Messages, Timed, cpu_of, serve
from bench.public.stub import StubModel, rough_tokens, text_of

PACKAGES = ("openhands-sdk",)
_SUMMARY = "_summary"
"""Marks the message of a summary, which becomes such an event again in the next compaction of a chain."""


def compact(messages: Messages, model: StubModel, job: Job) -> Timed:
    """Condense; a condensation is requested where the package's own limits would not ask for one."""
    sdk = Sdk(model)
    events = sdk.events_of(messages)
    options: dict[str, int] = {}
    if job.room is not None:
        fixed = sum(rough_tokens(text_of(message)) for message in messages if message.get("role") == "system")
        options["max_tokens"] = 2 * (job.keep + fixed)  # it goes down to half of it
        options["max_size"] = max(240, 4 * len(events))  # tokens are the limit here, not the number of events
    condenser = sdk.condenser.LLMSummarizingCondenser(llm=sdk.llm, **options)
    view = sdk.view.View(events=events, unhandled_condensation_request=job.room is None)
    made, spent = cpu_of(lambda: condenser.condense(view, agent_llm=sdk.llm))
    left = events if isinstance(made, sdk.view.View) else made.apply(events)
    return Timed(sdk.messages_of(left), spent)


class Sdk:
    """The modules of the package, and the stubbed model in its form."""

    def __init__(self, model: StubModel) -> None:
        self.condenser: Any = importlib.import_module("openhands.sdk.context.condenser")
        self.view: Any = importlib.import_module("openhands.sdk.context.view")
        self.event: Any = importlib.import_module("openhands.sdk.event")
        self.values: Any = importlib.import_module("openhands.sdk.llm")
        self.observation = _observation_class()
        self.llm = _model()
        self.llm.use(model)

    def events_of(self, messages: Messages) -> list[Any]:
        """Return the events of a conversation."""
        found: list[Any] = []
        actions: dict[str, Any] = {}
        for number, message in enumerate(messages):
            role, text = message.get("role"), self._text(text_of(message))
            if message.get(_SUMMARY):
                summary = {"id": f"{number}-summary", "summary": message[_SUMMARY], "source": "environment"}
                found.append(self.event.CondensationSummaryEvent(**summary))
            elif role == "system":
                found.append(self.event.SystemPromptEvent(id=str(number), system_prompt=text, tools=[]))
            elif role == "tool":
                found.append(self._result(number, message, actions))
            elif message.get("tool_calls"):
                calls = self._calls(number, message)
                actions.update((action.tool_call_id, action) for action in calls)
                found += calls
            else:
                source = "user" if role == "user" else "agent"
                said = self.values.Message(role=role, content=[text])
                found.append(self.event.MessageEvent(id=str(number), source=source, llm_message=said))
        return found

    def _text(self, text: str) -> Any:
        return self.values.TextContent(text=text)

    def _calls(self, number: int, message: dict[str, Any]) -> list[Any]:
        thought = text_of(message)
        made = []
        for place, call in enumerate(message["tool_calls"]):
            name, given = call["function"]["name"], call["function"].get("arguments") or "{}"
            made.append(
                self.event.ActionEvent(
                    id=f"{number}-{place}",
                    thought=[self._text(thought)] if thought and not place else [],
                    tool_name=name,
                    tool_call_id=call["id"],
                    tool_call=self.values.MessageToolCall(
                        id=call["id"], name=name, arguments=given, origin="completion"
                    ),
                    llm_response_id=f"response-{number}",
                )
            )
        return made

    def _result(self, number: int, message: dict[str, Any], actions: dict[str, Any]) -> Any:
        call = str(message.get("tool_call_id") or "")
        action = actions.get(call)
        return self.event.ObservationEvent(
            id=str(number),
            observation=self.observation.from_text(text_of(message)),
            action_id=action.id if action else f"unknown-{number}",
            tool_name=action.tool_name if action else str(message.get("name") or "tool"),
            tool_call_id=call,
        )

    def messages_of(self, events: list[Any]) -> Messages:
        """Return the messages that the package would send for events."""
        made: Messages = []
        for message in self.event.LLMConvertibleEvent.events_to_messages(events):
            text = "\n".join(part.text for part in message.content if hasattr(part, "text"))
            one: dict[str, Any] = {"role": message.role, "content": text}
            if message.tool_calls:
                one["tool_calls"] = [
                    {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                    for call in message.tool_calls
                ]
            if message.tool_call_id:
                one["tool_call_id"] = message.tool_call_id
            made.append(one)
        summaries = [event for event in events if isinstance(event, self.event.CondensationSummaryEvent)]
        for event in summaries:
            for one in made:
                if event.summary and event.summary in one["content"]:
                    one[_SUMMARY] = event.summary
                    break
        return made


@cache
def _observation_class() -> Any:
    schema: Any = importlib.import_module("openhands.sdk.tool.schema")

    class BenchObservation(schema.Observation):  # type: ignore[misc]  # only known where the package is
        """The text of a tool's result."""

    return BenchObservation


@cache
def _model() -> Any:
    testing: Any = importlib.import_module("openhands.sdk.testing")
    values: Any = importlib.import_module("openhands.sdk.llm")

    class BenchModel(testing.TestLLM):  # type: ignore[misc]  # as above
        """A model that answers as the stub does, and counts tokens by length."""

        def use(self, stub: StubModel) -> None:
            object.__setattr__(self, "_stub", stub)

        def generate(self, messages: Any, **options: Any) -> Any:
            prompt = "\n".join(part.text for message in messages for part in message.content)
            said = self._stub.answer(prompt, options.get("max_tokens"))
            self._scripted_responses.append(values.Message(role="assistant", content=[values.TextContent(text=said)]))
            return self.completion(messages)

        def get_token_count(self, messages: Any, **_: Any) -> int:
            return sum(
                sum(rough_tokens(part.text) for part in message.content if hasattr(part, "text"))
                + sum(rough_tokens(call.arguments) for call in message.tool_calls or ())
                for message in messages
            )

    return BenchModel(model="stub", usage_id="stub")


if __name__ == "__main__":
    serve(PACKAGES, compact)
