"""HTTP in, JSON out."""
