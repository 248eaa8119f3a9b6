"""The adapters with the real packages of their frameworks; `make test-frameworks` installs these and runs it."""
