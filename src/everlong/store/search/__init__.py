"""The search: any words, ranked; phrases, paths and parts of words; patterns; scripts without spaces."""

from everlong.store.search.query import Mode
from everlong.store.search.scope import Filters
from everlong.store.search.searcher import Hit, Order, Page, Searcher
from everlong.store.search.snippets import Snippet

__all__ = ["Filters", "Hit", "Mode", "Order", "Page", "Searcher", "Snippet"]
