"""Exports traces, metrics and log records of ended turns over OTLP, derived from committed events."""
