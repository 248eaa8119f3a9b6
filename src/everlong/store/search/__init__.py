"""Finding what was said: any words, ranked; phrases, paths and parts of words; patterns; scripts without spaces."""

from everlong.store.search.hits import Hit, Page
from everlong.store.search.query import Mode
from everlong.store.search.scope import Filters
from everlong.store.search.searcher import Searcher
from everlong.store.search.snippets import Snippet
from everlong.store.search.walk import Order

__all__ = ["Filters", "Hit", "Mode", "Order", "Page", "Searcher", "Snippet"]
