"""Verified, resumable and cached downloads."""
