"""The composition root of the control plane: settings, TLS, start and stop, retention, webhook deliveries.

Used by `rackwright server`, the lab and tests. No package but the lab and the command line may import it.
"""
