"""The upkeep of a store: forget, collect garbage, keep it small, back it up, check it."""
