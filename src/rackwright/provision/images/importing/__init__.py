"""Importing images that were made elsewhere: disk images, root file systems as tar archives, and OCI images.

Used by the command line alone. What is imported is a stranger's: none of its file systems is mounted, none of its names
is used as a path, and everything has a limit. It knows nothing of servers and installs.
"""
