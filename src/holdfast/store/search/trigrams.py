"""Turns a query into search terms, and terms into trigrams. Pure.

A text matches if it contains every term of the query, regardless of case. The index knows only which trigrams and which
characters a text contains, so it returns candidates: always all that match, often some that do not. The candidates are
then read and compared with `matches_all`, which decides.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.model.errors import Invalid

GRAM = 3
MAX_GRAMS = 16
"""Trigrams per query. More cost more time than they save by excluding candidates: a long query is sampled."""
CHUNK = 1 << 16
"""Characters folded at once: each takes twelve bytes of memory, and no other thread can run meanwhile."""
LAST_LETTER = "\U0010ffff"
END = "\n" * (GRAM - 1)
"""Appended to every indexed text, so that its last characters start a trigram as well."""

_PHRASES = re.compile(r'"(.+?)"(?=\s|$)|(\S+)', flags=re.DOTALL)
# The tokenizer skips NUL and reads these two as U+FFFD (sqlite3 `READ_UTF8`).
_AS_THE_TOKENIZER = str.maketrans({"\0": "\ufffd", "\ufffe": "\ufffd", "\uffff": "\ufffd"})


class SearchTerm(msgspec.Struct, frozen=True):
    """Something that a text must contain, in any of these folded spellings."""

    forms: tuple[str, ...]

    def is_in(self, folded: str) -> bool:
        return any(form in folded for form in self.forms)

    @property
    def shortest(self) -> int:
        return min(len(form) for form in self.forms)

    @property
    def is_short(self) -> bool:
        """Whether one of its spellings has no trigram."""
        return self.shortest < GRAM


def fold(text: str) -> str:
    """The case-folded text.

    It folds character by character, so that a folded substring is always a substring of the folded text. Unicode
    normalisation does not have this property ("e" is in "e\u0301" but not in "\u00e9"), so terms have several spellings
    instead.
    """
    if len(text) <= CHUNK:
        return text.casefold()
    return "".join(chunk.casefold() for chunk in chunks(text))


def chunks(text: str) -> Iterator[str]:
    return (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))


def parse_query(query: str) -> tuple[SearchTerm, ...]:
    """The terms of a query: its words, and quoted phrases with their blanks.

    No other character is special; a quote counts only at the start and the end of words. Raises Invalid for an empty query.
    """
    phrases = [quoted or word for quoted, word in _PHRASES.findall(query)]
    if not phrases:
        raise Invalid("the query is empty; give at least one word")
    return tuple(SearchTerm(spellings(phrase)) for phrase in dict.fromkeys(phrases))


def spellings(phrase: str) -> tuple[str, ...]:
    """The phrase as given, and with its accents composed and decomposed."""
    forms = (phrase, unicodedata.normalize("NFC", phrase), unicodedata.normalize("NFD", phrase))
    return tuple(dict.fromkeys(fold(form) for form in forms))


def matches_all(folded: str, wanted: Iterable[SearchTerm]) -> bool:
    return all(term.is_in(folded) for term in wanted)


def pad_for_index(folded: str) -> str:
    """A folded text as it is added to the trigram index."""
    return storable(folded) + END


def storable(text: str) -> str:
    """The text without NUL and lone surrogates, which SQLite text cannot contain."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def letters(folded: str) -> str:
    """The distinct characters of a folded text, as words for the character index."""
    found: set[str] = set()
    for chunk in chunks(folded):
        found.update(chunk)
    return " ".join([_letter(each) for each in found])


def _letter(letter: str) -> str:
    return f"{ord(letter):x}"


def session_trigram(session_id: str) -> str:
    """A trigram of private-use characters that marks the events of a session; two sessions may share one."""
    digest = _digest(session_id)
    return "".join(chr(0xF0000 + int.from_bytes(digest[i : i + 2], "big") % 0x8000) for i in (0, 2, 4))


def session_word(session_id: str) -> str:
    """The same for the character index: a word that no character has."""
    return "s" + _digest(session_id).hex()


def _digest(session_id: str) -> bytes:
    return hashlib.blake2b(session_id.encode("utf-8", "replace"), digest_size=6).digest()


def trigrams(form: str, limit: int = MAX_GRAMS) -> list[str]:
    """Distinct trigrams of a spelling, at most `limit`, spread over it."""
    text = storable(form)
    count = len(text) - GRAM + 1
    starts = range(count) if count <= limit else [i * (count - 1) // (limit - 1 or 1) for i in range(limit)]
    return list(dict.fromkeys(text[start : start + GRAM] for start in starts))


def term_range(form: str) -> tuple[str, str]:
    """The first and the last index term that can begin with a spelling of less than three characters."""
    low = storable(form).translate(_AS_THE_TOKENIZER)
    return low, low + LAST_LETTER * (GRAM - len(low))


def quoted(term: str) -> str:
    """A string literal of the FTS5 query language."""
    return '"' + term.replace('"', '""') + '"'


def all_of(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + " AND ".join(parts) + ")"


def any_of(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + " OR ".join(parts) + ")"


def trigram_expression(term: SearchTerm, limit: int = MAX_GRAMS) -> str:
    """The FTS5 query for all texts that could contain the term, by its trigrams."""
    return any_of([all_of([quoted(gram) for gram in trigrams(form, limit)]) for form in term.forms])


def letter_expression(term: SearchTerm) -> str:
    """The same by its characters."""
    return any_of([all_of([quoted(_letter(each)) for each in dict.fromkeys(form)]) for form in term.forms])
