"""Reading and writing of the configuration files of other libraries."""
