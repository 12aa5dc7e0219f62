"""HTTP as every route uses it: bodies, answers, ETags, paging, patches, problems, time limits.

Used by the routes and the server. It must never know a resource.
"""
