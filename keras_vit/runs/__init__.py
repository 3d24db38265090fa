"""Recipes, configurations and run folders."""
