"""The client of our own API: the command line, the lab and the tests speak to a server through it.

Calls, tries, pages and errors are here once; `ApiClient` and `AsyncApiClient` differ in nothing but how they wait.
It knows nothing of the server's code, nor of exit codes and terminals.
"""
