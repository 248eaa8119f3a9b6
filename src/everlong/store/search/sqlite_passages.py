"""Lists of passages in SQLite's index, and the expressions of FTS5 that find them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from everlong.store.database import in_batches
from everlong.store.search.index import SearchScope, scope_of_messages, scope_of_summaries
from everlong.store.search.passage_scores import COUNTED, MANY, NAMED_ROWS, Passages, Spread, Wanted, passage_bounds
from everlong.store.search.text import PASSAGE_BITS

DOCUMENT = f"w.rowid >> {PASSAGE_BITS}"
_UNITED = 100
_ENDS = "SELECT (SELECT max(id) FROM search_passages_docsize), (SELECT min(id) FROM search_passages_docsize)"


class SQLitePassages:
    """See `everlong.store.search.passage_scores.PassageLists`."""

    def __init__(self, connection: Connection, scope: SearchScope) -> None:
        self._connection = connection
        self._scope = scope

    def spread(self, terms: Sequence[str]) -> dict[str, Spread]:
        """Return in how many passages each term stands, counted as far as it matters; terms in none are left out."""
        last, first = (end or 0 for end in self._connection.exec_driver_sql(_ENDS).one())
        newest = "SELECT rowid FROM search_passages WHERE search_passages MATCH ? ORDER BY rowid DESC LIMIT ?"
        counted = f"SELECT ?, count(*), min(rowid) FROM ({newest})"  # noqa: S608 - only constants
        values = [value for term in terms for value in (term, quoted(term), COUNTED)]
        found: dict[str, Spread] = {}
        for term, count, oldest in _union(self._connection, counted, len(terms), values):
            if count == COUNTED and oldest > 0:
                share = (last - oldest + 1) / (last - max(first, 0) + 1)
                found[term] = Spread(min(MANY, max(count, int(count / share))), last, oldest)
            elif count:
                found[term] = Spread(count, last, first)
        return found

    def passages_with(self, wanted: Sequence[Wanted], limit: int, since: int | None = None) -> list[Passages]:
        """Return for each wish the newest passages that have it, those after ``since``."""
        expressions = [tagged(_expression(one), self._scope, one.is_rare) for one in wanted]
        return self._newest(expressions, limit, since)

    def passages_named(self, terms: Sequence[str], signs: Sequence[str]) -> Passages:
        """Return the newest passages with some neighbouring words."""
        return self._newest([tagged(all_of((*signs, *terms)), self._scope)], NAMED_ROWS)[0]

    def _newest(self, expressions: Sequence[str], limit: int, since: int | None = None) -> list[Passages]:
        found = [Passages([], []) for _ in expressions]
        low, high = passage_bounds(self._scope)
        low = low if since is None else max(low, since)
        sources = []
        if self._scope.has_messages:
            where, values = scope_of_messages(self._scope)
            rows = f"node n ON n.seq = {DOCUMENT} WHERE w.rowid > {low:d} AND w.rowid < {high:d} AND {where}"
            sources.append(("CASE n.role WHEN 'user' THEN 1 ELSE 0 END", rows, values))
        if self._scope.has_summaries:
            where, values = scope_of_summaries(self._scope)
            rows = f"view_item i ON i.seq = -({DOCUMENT}) JOIN view v ON v.id = i.view"
            sources.append(("0", f"{rows} WHERE w.rowid < 0 AND {where}", values))
        for is_person, source, values in sources:
            # All numbers as one text: a row for each takes longer than to find them.
            statement = (
                "SELECT ?, group_concat(passage) FILTER (WHERE is_person), group_concat(passage) FILTER "  # noqa: S608
                f"(WHERE NOT is_person) FROM (SELECT w.rowid AS passage, {is_person} AS is_person "
                f"FROM search_passages w CROSS JOIN {source} "
                "AND w.search_passages MATCH ? ORDER BY w.rowid DESC LIMIT ?)"
            )
            given = [
                value for place, expression in enumerate(expressions) for value in (place, *values, expression, limit)
            ]
            for place, persons, others in _union(self._connection, statement, len(expressions), given):
                found[place].persons.extend(map(int, persons.split(",")) if persons else ())
                found[place].others.extend(map(int, others.split(",")) if others else ())
        return found

    def lengths(self, passages: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield the number of terms of passages, as FTS5 keeps it first: seven bits in a byte, the highest first."""
        for part in in_batches(passages):
            marks = ",".join("?" * len(part))
            statement = f"SELECT id, sz FROM search_passages_docsize WHERE id IN ({marks})"  # noqa: S608 - only marks
            for passage, sizes in self._connection.exec_driver_sql(statement, tuple(part)).fetchall():
                length = 0
                for byte in sizes:
                    length = length << 7 | byte & 0x7F
                    if byte < 0x80:
                        break
                yield passage, length


def _expression(wanted: Wanted) -> str:
    return f"{quoted(wanted.terms[0])} *" if wanted.is_start else all_of(wanted.terms)


def all_of(tokens: Sequence[str]) -> str:
    """Return an expression for rows with all of some tokens."""
    return " AND ".join(map(quoted, dict.fromkeys(tokens)))


def tagged(expression: str, scope: SearchScope, is_rare: bool = False) -> str:
    """Return an expression for texts that also have the tags of a scope; the role of few texts is read instead."""
    tags = all_of(replace(scope, role=None).tags() if is_rare else scope.tags())
    if not tags or not expression:
        return expression or tags
    return f"{tags} AND ({expression})"


def quoted(text: str) -> str:
    """Return a term as expressions of FTS5 write it."""
    return '"' + text.replace('"', '""') + '"'


def _union(connection: Connection, statement: str, times: int, values: Sequence[Any]) -> list[Any]:
    """Return the rows of a statement with several sets of values, in one go: each by itself would cost more."""
    rows: list[Any] = []
    step = max(1, len(values) // max(1, times))
    for start in range(0, times, _UNITED):
        part = values[start * step : (start + _UNITED) * step]
        united = " UNION ALL ".join([statement] * (len(part) // step))
        rows += connection.exec_driver_sql(united, tuple(part)).fetchall()
    return rows
