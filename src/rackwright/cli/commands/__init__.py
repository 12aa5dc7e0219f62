"""The nouns of the command line that speak to a server or to this machine: one module a noun.

Used by `cli.main`, which loads one of them when it is called. No noun imports another's module but for shared views.
"""
