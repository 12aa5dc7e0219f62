"""Networks as stored: ranges, addresses given to nodes, DNS names and domains.

Used by the machines, the annealer and the API. It must never speak DHCP or DNS: `provision` does.
"""
