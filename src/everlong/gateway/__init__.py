"""An endpoint that clients talk to unchanged, and whose conversations never end."""
