"""Masked patch prediction task, the self-supervised pre-training of the ViT paper."""
