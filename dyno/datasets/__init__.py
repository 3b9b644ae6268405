"""Data sets: where the real files are looked for, the sample that ships, and a synthetic twin."""
