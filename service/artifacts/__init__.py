"""Artifacts: the files that jobs leave."""
