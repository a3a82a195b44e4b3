"""Tuned kernels: which Loops each can compute, how constants are packed for it, and its tiles."""
