"""Machines: the steps of an install, names, power, LLDP neighbours, SSH logins, members of the mesh.

Used by the store and the annealer. Pure.
"""
