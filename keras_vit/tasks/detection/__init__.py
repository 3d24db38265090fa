"""Detection: boxes of objects, with their classes."""
