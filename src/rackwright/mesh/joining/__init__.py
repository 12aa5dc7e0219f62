"""Becoming a member: founding a cluster, invites and tokens, joining, and renewing certificates.

Used by the agent and the command line. It must never know the datastore's contents or runs.
"""
