"""The command line. ``main.py`` lists the commands; each is a module of its own."""
