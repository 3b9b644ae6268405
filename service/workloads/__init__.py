"""Workloads: the catalogue, and the HTML forms that submit jobs or save schedules."""
