"""The dashboard: HTML pages that the service renders. They show the same facts with and without JavaScript."""
