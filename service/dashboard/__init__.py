"""The dashboard: HTML pages for people, rendered here. They show the same facts with and without JavaScript."""
