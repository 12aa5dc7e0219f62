"""Networks: their subnets, ranges and addresses, what DHCP and DNS serve, and which addresses the server may call.

Used by the store and by `provision`. Pure.
"""
