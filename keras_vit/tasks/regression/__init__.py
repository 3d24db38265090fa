"""Regression: one number or a few for each image."""
