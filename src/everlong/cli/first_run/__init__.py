"""The first run: finds the models that a person can use, lets them choose one, proves it, and writes it down."""
