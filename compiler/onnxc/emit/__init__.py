"""Kernel IR to C text."""
