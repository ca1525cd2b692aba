"""Adds to the site of `make site` the pages of the repository root, with adapted links, and scripts."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / ".venv" / "site"
"""Where scripts/site-packages puts them."""
PAGES = {"README.md": "index.md"} | {name: name for name in ("AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md")}
COPIES = ("LICENSE", "examples/bridge/bridge.py")
"""Files that pages link to."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files from outside docs/."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, page, content=_adapt_links(text)))
    for name in COPIES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text("utf-8")))
    for script in SCRIPTS.glob("*.js"):
        files.append(File.generated(config, script.name, content=script.read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Make links to files outside docs/ lead to their copies."""
    return markdown.replace("](../examples/", "](examples/")


def _adapt_links(text: str) -> str:
    """Adapt the links of a page of the root, which the site puts beside the pages of docs/."""
    return re.sub(r'(\]\(|src=")docs/', r"\1", text).replace("](README.md", "](index.md")
