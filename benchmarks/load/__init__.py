"""What the API does for ordinary callers while others abuse it, and how much of the ordinary it can do."""
