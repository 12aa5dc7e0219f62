"""The datastore that survives servers: etcd processes, their membership, takeover, and a client with locks.

Used by runs and by the agent. It must never know what is stored in it, but for the cluster's own settings.
"""
