"""Files of datasets: local, in object storage, or packed into shards."""
