"""The composition root of the control plane: settings, TLS, start and stop, retention, webhook deliveries.

`serve.py` starts and stops a server, `composition.py` puts its parts together, `background_work.py` runs what a server
does by itself, `listener.py` listens. Used by `rackwright server`, the lab and tests. No package but the lab and the
command line may import it.
"""
