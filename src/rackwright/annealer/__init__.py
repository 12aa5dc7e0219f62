"""The background work that takes the graph to ACTIVE: claim runs, execute and settle them, call hooks, watch machines.

Used by the server and the API. It must never write SQL, which is in the store.
"""
