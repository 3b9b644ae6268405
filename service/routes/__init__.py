"""What can be asked for: one file per route group, each with a `router` that `app` takes in.

Routes import `dependencies`, `requests`, `answers` and what those rest on; nothing but `app` imports a route.
"""
