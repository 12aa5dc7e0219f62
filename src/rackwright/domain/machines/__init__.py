"""Machines: the steps of an install and its log, names, power, LLDP neighbours, SSH logins, members of the mesh.

Used by the store and the annealer. Pure.
"""
