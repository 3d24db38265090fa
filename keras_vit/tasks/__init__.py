"""Tasks: what a model learns, how it is evaluated, and what is served."""
