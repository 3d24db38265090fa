"""Masked autoencoder (MAE) pre-training task."""
