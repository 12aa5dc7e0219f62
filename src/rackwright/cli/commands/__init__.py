"""The nouns of the command line that speak to a server or to this machine: one module for each noun.

Used by `cli.main`, which loads only the noun that is called. A noun imports another's module only for shared views.
"""
