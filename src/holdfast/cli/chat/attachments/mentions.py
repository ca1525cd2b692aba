"""Finds `@path` mentions in a typed message. Pure."""

import re
from collections.abc import Iterator

MENTION = re.compile(r'(?:^|(?<=[\s(]))@(?:"([^"\n]+)"|([^\s"]+))')
PUNCTUATION = ".,;:!?)]}'"
"""Characters that may follow a path in a sentence."""
QUOTED = re.compile(r'[\s"]')


def find_mentions(text: str) -> Iterator[tuple[str, ...]]:
    """The possible paths of each mention, the most literal first: `@notes.md.` is `notes.md.`, or else `notes.md`."""
    for found in MENTION.finditer(text):
        if found[1] is not None:
            yield (found[1],)
            continue
        path = found[2]
        yield tuple(dict.fromkeys((path, path.rstrip(PUNCTUATION))))


def looks_like_path(path: str) -> bool:
    """Whether a name that does not exist was probably meant as a path: it has a slash or an extension, and no brackets."""
    return re.fullmatch(r"[^()\[\]{}<>=]*(/|\w\.\w)[^()\[\]{}<>=]*", path) is not None


def mention(path: str) -> str:
    """The mention of a path."""
    return f'@"{path}"' if QUOTED.search(path) else f"@{path}"
