"""A PostgreSQL cluster of three machines with several gateways before it, and everything in it failing under load."""
