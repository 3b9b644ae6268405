"""Pictures of results and sweeps, for the dashboard, the API and the `dyno` command.

`drawing` writes shapes as SVG and PNG, `axes` places and labels values, and `result_charts`, `several` and
`sweep_charts` draw the pictures.
"""
