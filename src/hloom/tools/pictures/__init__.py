"""Pictures of programs and layouts as SVG, PNG, HTML and Graphviz."""
