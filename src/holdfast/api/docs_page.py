"""`/docs`: the OpenAPI document as an HTML page without external resources."""

from html import escape
from typing import Any

Json = dict[str, Any]
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}
code,pre{font:14px/1.5 ui-monospace,monospace}summary{cursor:pointer;padding:.3em 0}
b{display:inline-block;width:4.5em}dt{font-family:ui-monospace,monospace}dd{margin:0 0 .3em 2em;color:#555}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}dd{color:#aaa}}
"""


def render_docs_page(document: Json) -> str:
    """Render all routes with their parameters, bodies and responses."""
    about = document["info"]
    routes = [
        _route(path, method, operation, document["components"]["schemas"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    head = f"<title>{escape(about['title'])} API</title><style>{STYLE}</style>"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">{head}<h1>{escape(about["title"])} '
        f"{escape(about['version'])}</h1><p>{escape(about['description'])} Every request except <code>/health</code> needs "
        "<code>Authorization: Bearer KEY</code>. For programs: <code>/openapi.json</code>.</p>"
        f"{''.join(routes)}</html>"
    )


def _route(path: str, method: str, operation: Json, schemas: Json) -> str:
    parts = [_fields("Parameters", [(p["name"], p["in"], p["schema"]) for p in operation["parameters"]])]
    body = operation.get("requestBody", {}).get("content", {})
    parts += [_schema("Body", content["schema"], schemas) for content in body.values()]
    for status, answer in operation["responses"].items():
        parts += [
            _schema(f"{status}: {kind}", content["schema"], schemas) for kind, content in answer["content"].items()
        ]
    return (
        f"<details><summary><b>{method.upper()}</b><code>{escape(path)}</code> {escape(operation['summary'])}</summary>"
        f"{''.join(parts)}</details>"
    )


def _schema(title: str, schema: Json, schemas: Json) -> str:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    fields = schemas.get(name, {}).get("properties", {})
    return _fields(title, [(field, name, about) for field, about in fields.items()])


def _fields(title: str, fields: list[tuple[str, str, Json]]) -> str:
    if not fields:
        return f"<h4>{escape(title)}</h4>"
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(f'{where} · {_kind(about)}')}</dd>" for name, where, about in fields
    )
    return f"<h4>{escape(title)}</h4><dl>{rows}</dl>"


def _kind(schema: Json) -> str:
    """Summarise the type of a value."""
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(_kind(option) for option in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = str(schema.get("type", "anything"))
    return f"list of {_kind(schema.get('items') or {})}" if kind == "array" else kind
