"""The client of our own API: the command line, the lab and the tests speak to a server through it.

Calls, retries, pages and errors are written here once; `ApiClient` and `AsyncApiClient` differ only in how they wait.
This package knows nothing of the server's code, nor of exit codes and terminals.
"""
