"""The network of an installed system: netplan v2 as people write it, checked against the machine. Pure.

Used by installs, which write the files into the new root, and by the jig that changes the network of a living node. It
must never know the database, nor touch a machine.
"""
