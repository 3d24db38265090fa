"""Multi-label classification."""
