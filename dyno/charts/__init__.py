"""Pictures of results and sweeps, for pages, the API and the command.

`drawing` makes SVG and PNG of shapes, `axes` places values and labels them, and `result_charts`, `several` and
`sweep_charts` draw.
"""
