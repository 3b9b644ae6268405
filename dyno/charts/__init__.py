"""Pictures of results and sweeps, for pages, the API and the command.

`drawing` makes SVG and PNG of shapes, `axes` places values and labels them, and `results`, `several` and
`sweep_charts` draw.
"""
