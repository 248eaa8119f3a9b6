"""Long runs of the channels."""
