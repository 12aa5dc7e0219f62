"""Files, folders and links: their content, owner and mode, with real diffs and whole-file writes.

Each file here has a family of functions; the writing itself is in `support/files.py`.
"""

from .edit import FUNCTIONS as EDIT
from .links import FUNCTIONS as LINKS
from .managed import FUNCTIONS as MANAGED
from .tree import FUNCTIONS as TREE

FUNCTIONS = (*MANAGED, *TREE, *LINKS, *EDIT)
