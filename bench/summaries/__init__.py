"""What stands in the summaries of real conversations."""
