"""Identities of servers and operators: the cluster's CA, certificates, revocation, trust, signatures and sealing.

Used by the transport, the datastore and runs. It must never know which members are alive.
"""
