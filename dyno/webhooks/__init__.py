"""Telling a receiver over HTTP that a job is done: what is said, how it is signed, and who sees to it."""
