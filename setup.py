"""Shim for tools that still look for setup.py; everything stands in pyproject.toml."""

from setuptools import setup

setup()
