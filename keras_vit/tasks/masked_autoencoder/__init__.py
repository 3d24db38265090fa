"""Masked auto-encoding."""
