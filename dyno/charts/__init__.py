"""Pictures of results and sweeps, for pages, the API and the command.

`drawing` writes shapes as SVG and PNG, `axes` places and labels values, and `result_charts`, `several` and
`sweep_charts` draw the pictures.
"""
