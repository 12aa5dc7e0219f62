"""Serving the first steps of a boot: TFTP for firmware, iPXE scripts, and the router advertisement iPXE waits for."""
