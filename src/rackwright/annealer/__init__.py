"""Claim, run, settle, reconcile: what takes the graph to ACTIVE. The SQL of it is the store's."""
