"""The charts of the page, drawn by Matplotlib as inline SVG.

Texts stay texts, and a page has some hundred kilobytes at most. A library that draws in the browser would add megabytes
of script to each file (plotly.js alone has 4.5 MB), and show nothing where scripts are not allowed, as in many ticket
systems. Colours are those of the style sheet, so that charts follow dark mode. Each chart has a table with its figures.
"""
