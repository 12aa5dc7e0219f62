"""The REST API: one module for each resource, each route with its permission.

Used by the server, which puts it together with its parts. It must never know how the server was started.
"""
