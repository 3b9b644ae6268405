"""Results: lists and frames of them, and imports from elsewhere."""
