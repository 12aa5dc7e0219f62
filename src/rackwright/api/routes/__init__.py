"""The REST API's routes: one module for each resource, each route with its permission.

Used by `api.app`, which puts them together. They must never write SQL: the store does.
"""
