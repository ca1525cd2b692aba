"""Builds the export to an OpenTelemetry collector."""

from holdfast.engine.engine import Engine
from holdfast.installation import command_to_add
from holdfast.model.errors import Unsupported
from holdfast.supervisor import BackgroundTask
from holdfast.wiring.store import App


def tasks(app: App, engine: Engine) -> dict[str, BackgroundTask]:
    """The task that exports to the configured collector; none without one. Raises Unsupported without the extra `otel`."""
    settings = app.settings
    if settings.telemetry.endpoint is None:
        return {}
    try:
        import opentelemetry.proto  # noqa: F401 - only to see whether it is there
    except ImportError as e:
        raise Unsupported(f"[telemetry] needs the extra otel; run: {command_to_add('otel')}") from e
    from holdfast.telemetry.export import TelemetryExport

    services = engine.services
    export = TelemetryExport(
        app.database, services.clock, services.worker_id, settings.telemetry, default_model=settings.model
    )
    return {"telemetry": export.as_task()}
