"""Verified, resumed and cached downloads."""
