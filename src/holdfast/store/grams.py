"""How a query becomes words to look for, and words become trigrams: the pure part of search.

A text is found if it holds every needle of the query, whatever the case. The index knows only which
trigrams and which letters a text holds, so it names candidates: always all that fit, often some that
do not. The candidates are then read and compared with `holds`, which alone decides.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.model.errors import Invalid

GRAM = 3
MAX_GRAMS = 16
"""Trigrams asked for at once. More cost more time than the candidates they rule out: a long query is sampled."""
CHUNK = 1 << 16
"""Letters looked at in one go: folding takes twelve bytes of memory for each, and no other thread can run meanwhile."""
LAST_LETTER = "\U0010ffff"
END = "\n" * (GRAM - 1)
"""Stands behind every indexed text, so that its last letters begin a trigram as well."""

_PHRASES = re.compile(r'"(.+?)"(?=\s|$)|(\S+)', flags=re.DOTALL)
# The tokenizer skips NUL and takes these two for U+FFFD (sqlite3 `READ_UTF8`).
_AS_THE_TOKENIZER = str.maketrans({"\0": "\ufffd", "\ufffe": "\ufffd", "\uffff": "\ufffd"})


class Needle(msgspec.Struct, frozen=True):
    """Something that a text must hold, in any of these folded spellings."""

    forms: tuple[str, ...]

    def is_in(self, folded: str) -> bool:
        return any(form in folded for form in self.forms)

    @property
    def shortest(self) -> int:
        return min(len(form) for form in self.forms)

    @property
    def is_short(self) -> bool:
        """Whether in some spelling it has no trigram."""
        return self.shortest < GRAM


def fold(text: str) -> str:
    """The text without differences of case.

    Works letter by letter, so that the folding of a part is always a part of the folding: Unicode
    normalisation is not like that ("e" is in "e\u0301" but not in "\u00e9"), which is why needles
    have several spellings instead.
    """
    if len(text) <= CHUNK:
        return text.casefold()
    return "".join(chunk.casefold() for chunk in chunks(text))


def chunks(text: str) -> Iterator[str]:
    return (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))


def needles(query: str) -> tuple[Needle, ...]:
    """What to look for: the words of the query, and what stands in quotes as it is, blanks included.

    No character has another meaning; a quote counts only at the beginning and the end of words.
    Raises Invalid if nothing is left.
    """
    phrases = [quoted or word for quoted, word in _PHRASES.findall(query)]
    if not phrases:
        raise Invalid("there is nothing to search for: give at least one word")
    return tuple(Needle(spellings(phrase)) for phrase in dict.fromkeys(phrases))


def spellings(phrase: str) -> tuple[str, ...]:
    """The phrase as given and with its accents composed and decomposed, as keyboards and file systems write them."""
    forms = (phrase, unicodedata.normalize("NFC", phrase), unicodedata.normalize("NFD", phrase))
    return tuple(dict.fromkeys(fold(form) for form in forms))


def holds(folded: str, wanted: Iterable[Needle]) -> bool:
    return all(needle.is_in(folded) for needle in wanted)


def indexed(folded: str) -> str:
    """A folded text as it goes into the index of trigrams."""
    return storable(folded) + END


def storable(text: str) -> str:
    """The text without NUL and lone surrogates, which SQLite's text cannot hold."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def letters(folded: str) -> str:
    """The different letters of a folded text, as words for the index of letters."""
    found: set[str] = set()
    for chunk in chunks(folded):
        found.update(chunk)
    return " ".join([_letter(each) for each in found])


def _letter(letter: str) -> str:
    return f"{ord(letter):x}"


def badge(session_id: str) -> str:
    """A trigram of private letters that marks the events of a session; two sessions may share one."""
    digest = _digest(session_id)
    return "".join(chr(0xF0000 + int.from_bytes(digest[i : i + 2], "big") % 0x8000) for i in (0, 2, 4))


def badge_word(session_id: str) -> str:
    """The same for the index of letters: a word that no letter has."""
    return "s" + _digest(session_id).hex()


def _digest(session_id: str) -> bytes:
    return hashlib.blake2b(session_id.encode("utf-8", "replace"), digest_size=6).digest()


def trigrams(form: str, limit: int = MAX_GRAMS) -> list[str]:
    """Different trigrams of a spelling, at most so many, from all over it."""
    text = storable(form)
    count = len(text) - GRAM + 1
    starts = range(count) if count <= limit else [i * (count - 1) // (limit - 1 or 1) for i in range(limit)]
    return list(dict.fromkeys(text[start : start + GRAM] for start in starts))


def term_range(form: str) -> tuple[str, str]:
    """The first and the last term of the index that could begin with a spelling of less than three letters."""
    low = storable(form).translate(_AS_THE_TOKENIZER)
    return low, low + LAST_LETTER * (GRAM - len(low))


def quoted(term: str) -> str:
    """A string of FTS5's query language, in which nothing is special."""
    return '"' + term.replace('"', '""') + '"'


def all_of(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + " AND ".join(parts) + ")"


def any_of(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + " OR ".join(parts) + ")"


def by_trigrams(needle: Needle, limit: int = MAX_GRAMS) -> str:
    """The query that names all texts which could hold the needle, by its trigrams."""
    return any_of([all_of([quoted(gram) for gram in trigrams(form, limit)]) for form in needle.forms])


def by_letters(needle: Needle) -> str:
    """The same by its letters."""
    return any_of([all_of([quoted(_letter(each)) for each in dict.fromkeys(form)]) for form in needle.forms])
