"""The documentation's site: what mkdocs is given besides the pages in docs/."""
