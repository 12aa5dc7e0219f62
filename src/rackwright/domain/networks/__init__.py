"""Networks: subnets, ranges and addresses, what DHCP and DNS serve, and which addresses may be called.

Used by the store and by `provision`. Pure.
"""
