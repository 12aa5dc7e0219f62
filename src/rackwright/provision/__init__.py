"""What takes a machine from power-on to a system: DHCP, DNS and TFTP servers, iPXE scripts, router advertisements,
images.

Used by the jigs, by the API (boot routes) and by the server that composes them. It must never know the store, nor why a
machine is installed.
"""
