"""Weight file formats: arrays by name, read from and written to files."""
