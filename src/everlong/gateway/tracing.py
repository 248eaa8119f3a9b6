"""Requests as OpenTelemetry spans, by the conventions for generative models; without content.

The packages are loaded only where tracing is wanted; where spans go is said by OpenTelemetry's own variables
(``OTEL_EXPORTER_OTLP_ENDPOINT`` …).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everlong.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from everlong.gateway.account import Account

__all__ = ["Tracing", "open_tracing"]

_OPERATIONS = {"chat": "chat", "messages": "chat", "responses": "chat"}


class Tracing:
    """Tells a tracer of requests that are over."""

    def __init__(self, tracer: Any, close: Callable[[], None] | None = None) -> None:
        self._tracer = tracer
        self._close = close

    def told(self, account: Account) -> None:
        """Make a span of a request; only of those that are for a model."""
        operation = _OPERATIONS.get(account.route)
        if operation is None:
            return
        from opentelemetry import trace  # noqa: PLC0415 - only where tracing is wanted
        from opentelemetry.propagate import extract  # noqa: PLC0415 - as above

        started = int(account.started * 1e9)
        span = self._tracer.start_span(
            f"{operation} {account.model}".strip(),
            context=extract({"traceparent": account.traceparent}) if account.traceparent else None,
            kind=trace.SpanKind.CLIENT,
            start_time=started,
            attributes=_attributes(operation, account),
        )
        if account.status >= 400:
            span.set_status(trace.Status(trace.StatusCode.ERROR))
        span.end(end_time=started + int(account.seconds * 1e9))

    def close(self) -> None:
        """Send what is left."""
        if self._close is not None:
            self._close()


def _attributes(operation: str, account: Account) -> dict[str, Any]:
    found: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": account.provider or account.api or "custom",
        "http.response.status_code": account.status,
        "everlong.request.id": account.id,
        "everlong.tenant": account.tenant,
    }
    if account.model:
        found["gen_ai.request.model"] = account.model
    if account.session is not None:
        found["gen_ai.conversation.id"] = account.session
    if account.usage is not None:
        found["gen_ai.usage.input_tokens"] = account.usage.prompt_tokens
        found["gen_ai.usage.output_tokens"] = account.usage.output_tokens
    if account.compactions:
        found["everlong.compactions"] = list(account.compactions)
    if account.status >= 400:
        found["error.type"] = account.problem or str(account.status)
    return found


def open_tracing() -> Tracing:
    """Spans to where OpenTelemetry's own variables say.

    Raises:
        ConfigError: the packages are not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - only where it is wanted
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
    except ImportError as error:
        raise ConfigError(
            "gateway.tracing is true, but OpenTelemetry is not installed; install it with: pip install "
            "'everlong[otel]', or set gateway.tracing to false",
            key="gateway.tracing",
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "everlong-gateway"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider.get_tracer("everlong"), provider.shutdown)
