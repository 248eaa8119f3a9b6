"""One adapter for each package of the public benchmark; see `bench.public.protocol`."""
