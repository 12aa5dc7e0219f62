"""Machines to try things on: simulated ones by the thousand, speaking the same machine interface as real ones."""
