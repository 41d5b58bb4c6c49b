"""OpenTelemetry's API, which is imported when somebody asks for traces or metrics, and not before."""

import importlib
from typing import Any

from streamsink.errors import Misuse
from streamsink.protocol.sink import VERSION

SCOPE = "streamsink"


def _module(name: str) -> Any:
    """Raises Misuse where it is not installed."""
    try:
        return importlib.import_module(f"opentelemetry.{name}")
    except ImportError as missing:
        raise Misuse(
            "traces and metrics for OpenTelemetry need the package opentelemetry-api: pip install "
            "'streamsink[opentelemetry]', on the driver alone, and an SDK with the exporters of your choice. Nothing "
            "was written",
            kind="opentelemetry.package",
        ) from missing


def trace_api() -> Any:
    """The module ``opentelemetry.trace``."""
    return _module("trace")


def tracer_of(provider: Any) -> Any:
    """A tracer of this provider; None for the provider that the program has set for all."""
    return trace_api().get_tracer(SCOPE, VERSION, tracer_provider=provider)


def meter_of(provider: Any) -> Any:
    """A meter of this provider; None for the provider that the program has set for all."""
    return _module("metrics").get_meter(SCOPE, VERSION, meter_provider=provider)


def observation(value: float, attributes: dict[str, str]) -> Any:
    """One value of an instrument that is asked for it."""
    return _module("metrics").Observation(value, attributes)
