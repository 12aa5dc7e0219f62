"""Routes about the server itself: health, metrics, the OpenAPI document and the web page.

Used by `api.app`. They must never tell a stranger more than that the server is there.
"""
