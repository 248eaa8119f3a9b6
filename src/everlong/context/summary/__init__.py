"""Writing summaries: the document, the facts it is made of, and the summarizers."""
