"""The charts of the page, drawn by Matplotlib as SVG that stands in the page itself.

Matplotlib is what draws the other pictures of the harness, too, and writes SVG whose texts stay texts: a page weighs
some hundred kilobytes at most. A library that draws in the browser would put megabytes of script in each file
(plotly.js alone has 4.5 MB), and the page would show nothing where scripts are not allowed, as in many ticket systems.
Colours are those of the page's style sheet, so that a chart follows dark mode. Each chart has a table beside it with
the same figures.
"""
