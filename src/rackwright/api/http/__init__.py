"""HTTP as every route uses it: bodies, responses, ETags, paging, patches, problems, connections and time limits.

Used by the routes and the server. It must never know a resource.
"""
