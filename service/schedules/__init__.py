"""Schedules: jobs that are submitted at given times."""
