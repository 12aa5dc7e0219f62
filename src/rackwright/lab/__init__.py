"""Racks, machines and clusters that are not real: simulated machines, virtual machines, and fleets of mesh agents.

Used by the command line's demos, the tests and the benchmarks; no other package may import it. Simulated machines use
the same machine interface as real ones.
"""
