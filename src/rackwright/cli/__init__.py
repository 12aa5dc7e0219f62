"""The command line: one module a noun. It speaks to the server through the API, but for what is no client."""
