"""Encodes spans, metrics and log records as OTLP requests, with OpenTelemetry's own protobuf definitions."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

import holdfast
from holdfast.model.surrogates import repair_text
from holdfast.telemetry.log_records import LogRecord
from holdfast.telemetry.metric_points import HistogramPoint, Instrument
from holdfast.telemetry.turn_spans import Attributes, Span, Value

if TYPE_CHECKING:
    from google.protobuf.message import Message

NANOS = 1_000
"""Nanoseconds in a microsecond."""
SCOPE = InstrumentationScope(name="holdfast", version=holdfast.__version__)
KINDS = {
    "internal": trace_pb2.Span.SPAN_KIND_INTERNAL,
    "client": trace_pb2.Span.SPAN_KIND_CLIENT,
}
SEVERITIES = {
    "info": logs_pb2.SEVERITY_NUMBER_INFO,
    "warn": logs_pb2.SEVERITY_NUMBER_WARN,
    "error": logs_pb2.SEVERITY_NUMBER_ERROR,
}


def resource(service: str, store_id: str) -> Resource:
    """The source of all that is exported: one per store, because any of its workers may export."""
    attributes: Attributes = {"service.name": service, "service.version": holdfast.__version__}
    return Resource(attributes=_attributes({**attributes, "service.instance.id": store_id}))


def encode_spans(source: Resource, spans: Sequence[Span]) -> "Message":
    scoped = trace_pb2.ScopeSpans(scope=SCOPE, spans=map(_span, spans))
    return ExportTraceServiceRequest(
        resource_spans=[trace_pb2.ResourceSpans(resource=source, scope_spans=[scoped])],
    )


def encode_metrics(source: Resource, points: Sequence[HistogramPoint], start: int, end: int) -> "Message":
    """`start` and `end` are the time that the values cover."""
    by_instrument: dict[Instrument, list[HistogramPoint]] = {}
    for point in points:
        by_instrument.setdefault(point.instrument, []).append(point)
    metrics = [_metric(one, found, start, max(end, start + 1)) for one, found in by_instrument.items()]
    scoped = metrics_pb2.ScopeMetrics(scope=SCOPE, metrics=metrics)
    return ExportMetricsServiceRequest(
        resource_metrics=[metrics_pb2.ResourceMetrics(resource=source, scope_metrics=[scoped])],
    )


def encode_logs(source: Resource, records: Sequence[LogRecord]) -> "Message":
    scoped = logs_pb2.ScopeLogs(scope=SCOPE, log_records=map(_log_record, records))
    return ExportLogsServiceRequest(
        resource_logs=[logs_pb2.ResourceLogs(resource=source, scope_logs=[scoped])],
    )


def _span(span: Span) -> trace_pb2.Span:
    attributes = {**span.attributes, "error.type": span.error} if span.error else span.attributes
    code = trace_pb2.Status.STATUS_CODE_ERROR if span.error else trace_pb2.Status.STATUS_CODE_UNSET
    links = (
        [] if span.link is None else [trace_pb2.Span.Link(trace_id=span.link_trace or span.trace_id, span_id=span.link)]
    )
    return trace_pb2.Span(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_id or b"",
        name=repair_text(span.name),
        kind=KINDS[span.kind],
        start_time_unix_nano=span.start * NANOS,
        end_time_unix_nano=max(span.start, span.end) * NANOS,
        attributes=_attributes(attributes),
        events=[
            trace_pb2.Span.Event(
                name=event.name, time_unix_nano=event.at * NANOS, attributes=_attributes(event.attributes)
            )
            for event in span.events
        ],
        links=links,
        status=trace_pb2.Status(code=code, message=repair_text(span.message)),
    )


def _metric(instrument: Instrument, points: Iterable[HistogramPoint], start: int, end: int) -> metrics_pb2.Metric:
    histogram = metrics_pb2.Histogram(
        aggregation_temporality=metrics_pb2.AGGREGATION_TEMPORALITY_DELTA,
        data_points=[
            metrics_pb2.HistogramDataPoint(
                attributes=_attributes(point.attributes),
                start_time_unix_nano=start * NANOS,
                time_unix_nano=end * NANOS,
                count=sum(point.counts),
                sum=point.total,
                bucket_counts=point.counts,
                explicit_bounds=instrument.bounds,
            )
            for point in points
        ],
    )
    return metrics_pb2.Metric(
        name=instrument.name, unit=instrument.unit, description=instrument.description, histogram=histogram
    )


def _log_record(record: LogRecord) -> logs_pb2.LogRecord:
    return logs_pb2.LogRecord(
        time_unix_nano=record.at * NANOS,
        observed_time_unix_nano=record.at * NANOS,
        severity_number=SEVERITIES[record.severity],
        severity_text=record.severity.upper(),
        event_name=record.name,
        body=AnyValue(string_value=repair_text(record.body)) if record.body else None,
        attributes=_attributes(record.attributes),
        trace_id=record.trace_id,
        span_id=record.span_id,
    )


def _attributes(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in attributes.items()]


def _value(value: Value) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=repair_text(value))
        case _:
            return AnyValue(array_value=ArrayValue(values=map(_value, value)))
