"""Clients, batching and rollout for TensorFlow Serving."""
