"""The routes: one module per route group, each with a `router` that `app` includes.

Routes import everything of the service but `app` and `openapi`; nothing but `app` imports a route.
"""
