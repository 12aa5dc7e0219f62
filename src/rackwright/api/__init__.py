"""The REST API: one module a resource, each route with its permission."""
