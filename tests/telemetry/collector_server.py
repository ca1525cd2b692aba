"""A collector on a loopback port: it parses OTLP requests with OpenTelemetry's own definitions and keeps them."""

import gzip
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


class CollectorServer:
    """`statuses` are the statuses of the next responses; after them every request is accepted."""

    def __init__(self) -> None:
        self.statuses: deque[int] = deque()
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.arrived = threading.Event()
        """Set by every accepted request."""

    def __enter__(self) -> Self:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.headers["content-type"] == "application/x-protobuf"
                request = REQUESTS[self.path]()
                request.ParseFromString(gzip.decompress(body))
                status = collector.statuses.popleft() if collector.statuses else 200
                if status == 200:
                    collector.requests.append((self.path, dict(self.headers), request))
                    collector.arrived.set()
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> list[Any]:
        return [
            span
            for path, _, request in self.requests
            if path == "/v1/traces"
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> dict[str, list[Any]]:
        """The data points of each metric."""
        found: dict[str, list[Any]] = {}
        for path, _, request in self.requests:
            if path == "/v1/metrics":
                for metric in request.resource_metrics[0].scope_metrics[0].metrics:
                    found.setdefault(metric.name, []).extend(metric.histogram.data_points)
        return found

    def logs(self) -> list[Any]:
        return [
            record
            for path, _, request in self.requests
            if path == "/v1/logs"
            for record in request.resource_logs[0].scope_logs[0].log_records
        ]


def attributes(item: Any) -> dict[str, Any]:
    """The attributes of a span, record or data point."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in item.attributes}
