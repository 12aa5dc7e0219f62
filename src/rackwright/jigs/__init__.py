"""Jigs: implementations of the work of noderoles, one file each.

Every jig has the shape of `base.Jig`; `noop` is the one to copy. Used by the annealer; a jig never knows the store nor
the API, but takes what it needs of them from `ports.JigPorts`.
"""
