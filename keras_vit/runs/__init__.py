"""Training recipes, run configurations and run folders."""
