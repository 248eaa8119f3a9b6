"""The revisions of the schema, in order; run by `everlong.store.upgrade`."""
