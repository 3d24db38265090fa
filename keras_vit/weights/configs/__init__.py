"""Configuration files of other libraries."""
