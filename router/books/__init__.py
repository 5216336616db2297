"""The books: a row per request and an entry per attempt, each with its own outcome.

rows.py     a report becomes a row: the log, the books and every counter see the same one
keeper.py   the observer that enters rows, and finds them again
search.py   which rows are wanted, and a bounded walk through them
"""

from router.books.keeper import Books, Found
from router.books.rows import OUTCOMES, Entry, Row, entry_of, row_of
from router.books.search import Wanted

__all__ = ["OUTCOMES", "Books", "Entry", "Found", "Row", "Wanted", "entry_of", "row_of"]
