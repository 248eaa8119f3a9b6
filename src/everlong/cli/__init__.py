"""The command line. Each command is a module; heavy imports wait until a command runs."""
