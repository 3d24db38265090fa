"""TensorFlow Serving clients, request batching and version rollout."""
