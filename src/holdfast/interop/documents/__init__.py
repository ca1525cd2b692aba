"""The documents that commands print with `--json` and the API returns. The OpenAPI document is built from these types."""
