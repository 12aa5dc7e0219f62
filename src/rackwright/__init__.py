"""Rackwright takes bare machines to running workloads and keeps them there."""

__version__ = "0.1.0"
