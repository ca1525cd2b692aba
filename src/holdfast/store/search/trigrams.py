"""Turns a query into search terms, and terms into trigrams. Pure.

A text matches if it contains every term of the query, regardless of case and accents. The index knows only which trigrams and which
characters a text contains, so it returns candidates: always all that match, often some that do not. The candidates are
then read and compared with `matches_all`, which decides.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.model.errors import Invalid
from holdfast.store.search import typos
from holdfast.store.search.folding import CHUNK, fold

GRAM = 3
MAX_GRAMS = 16
"""Trigrams per query. More cost more time than they save by excluding candidates: a long query is sampled."""
LAST_LETTER = "\U0010ffff"
END = "\n" * (GRAM - 1)
"""Appended to every indexed text, so that its last characters start a trigram as well."""

_PHRASES = re.compile(r'"(.+?)"(?=\s|$)|(\S+)', flags=re.DOTALL)
# The tokenizer skips NUL and reads these two as U+FFFD (sqlite3 `READ_UTF8`).
_AS_THE_TOKENIZER = str.maketrans({"\0": "\ufffd", "\ufffe": "\ufffd", "\uffff": "\ufffd"})


class SearchTerm(msgspec.Struct, frozen=True):
    """Something that a text must contain, in any of these folded spellings."""

    forms: tuple[str, ...]
    typed: str = ""
    """As the user wrote it."""
    quoted: bool = False
    """Whether it was quoted, and must be exact."""
    near: str = ""
    """The folded word, if words with a typo match as well."""
    variants: tuple[str, ...] = ()
    """Patterns of those words, for the index."""

    def is_in(self, folded: str) -> bool:
        return any(form in folded for form in self.forms) or (
            bool(self.near) and any(True for _ in typos.similar_words(self.near, folded))
        )

    def spelled_in(self, folded: str) -> "SearchTerm":
        """The term with the words of this text that match it."""
        if not self.near or any(form in folded for form in self.forms):
            return self
        return SearchTerm(tuple(sorted(typos.similar_words(self.near, folded))))

    def with_typos(self) -> "SearchTerm":
        """The term if words with a typo match as well; itself if it must be exact."""
        word = self.forms[0]
        if self.quoted or not typos.may_have_typo(word):
            return self
        return msgspec.structs.replace(self, near=word, variants=typos.variants(word))

    @property
    def patterns(self) -> tuple[str, ...]:
        """What the index is searched for."""
        return self.forms + self.variants

    @property
    def shortest(self) -> int:
        return min(len(form) for form in self.forms)

    @property
    def is_short(self) -> bool:
        """Whether one of its spellings has no trigram."""
        return self.shortest < GRAM


def chunks(text: str) -> Iterator[str]:
    return (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))


def parse_query(query: str) -> tuple[SearchTerm, ...]:
    """The terms of a query: its words, and quoted phrases with their blanks.

    No other character is special; a quote counts only at the start and the end of words. Raises Invalid for an empty query.
    """
    phrases = {in_quotes or word: bool(in_quotes) for in_quotes, word in _PHRASES.findall(query)}
    if not phrases:
        raise Invalid("the query is empty; give at least one word")
    terms = (SearchTerm(spellings(phrase), phrase, is_quoted) for phrase, is_quoted in phrases.items())
    found = tuple(term for term in terms if all(term.forms))
    if not found:
        raise Invalid("the query has only accents, which make no difference; give at least one letter")
    return found


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


def mark_trigram(name: str) -> str:
    """A trigram of private-use characters that marks the events of a session, a role or a tool; two names may share one."""
    digest = _digest(name)
    return "".join(chr(0xF0000 + int.from_bytes(digest[i : i + 2], "big") % 0x8000) for i in (0, 2, 4))


def mark_word(name: str) -> str:
    """The same for the character index: a word that no character has."""
    return "s" + _digest(name).hex()


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=6).digest()


def trigrams(form: str, limit: int = MAX_GRAMS) -> list[str]:
    """Distinct trigrams of a spelling, at most `limit`, spread over it."""
    if typos.ANY in form:
        return list(dict.fromkeys(gram for piece in form.split(typos.ANY) for gram in trigrams(piece, limit)))
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
    return any_of([all_of([quoted(gram) for gram in trigrams(form, limit)]) for form in term.patterns])


def letter_expression(term: SearchTerm) -> str:
    """The same by its characters."""
    return any_of([all_of([quoted(_letter(each)) for each in dict.fromkeys(form)]) for form in term.forms])
