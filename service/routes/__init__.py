"""The routes: one module per route group, each with a `router` that `app` includes.

Routes may import all of the service but `app` and `openapi`. Only `app` imports routes.
"""
