"""The command line `rackwright`: one module for each noun.

Commands speak to a server through the API, except those that are no clients of it: `server`, `state`, `mesh`, `agent`,
`image`, `lab` and the like, which work on this machine.
"""
