"""Barclamps: those that come with Rackwright, one folder each, and the loading of barclamp folders.

Used by the server, the command line and the processes that run hooks. It must never know the store.
"""
