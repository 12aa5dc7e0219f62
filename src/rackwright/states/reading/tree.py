"""A tree of states on disk: which SLS there are, their text, and the variables in its `vars/` folder.

An SLS is named by its path with dots: `web/nginx.sls` and `web/nginx/init.sls` are both `web.nginx`. Nothing outside
the tree is read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from ..refusal import did_you_mean, refuse


class Tree:
    """One folder of state files."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._names: Optional[List[str]] = None

    def path_of(self, sls: str) -> Optional[str]:
        """The file of an SLS, relative to the root, or None."""
        base = sls.replace(".", "/")
        for candidate in (base + ".sls", base + "/init.sls"):
            if (self.root / candidate).is_file():
                return candidate
        return None

    def names(self) -> List[str]:
        """Every SLS in the tree, in path order."""
        if self._names is None:
            found = []
            for folder, folders, files in os.walk(self.root):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                inside = Path(folder).relative_to(self.root).parts
                for name in sorted(files):
                    if name.endswith(".sls") and not (inside == () and name == "top.sls") and inside[:1] != ("vars",):
                        stem = name[: -len(".sls")]
                        found.append(".".join(inside if stem == "init" and inside else (*inside, stem)))
            self._names = sorted(set(found))
        return self._names

    def read(self, path: str, wanted_by: str = "", line: int = 0) -> str:
        """The text of a file of the tree."""
        try:
            full = (self.root / path).resolve()
            full.relative_to(self.root)
            return full.read_text(encoding="utf-8")
        except ValueError as error:
            if isinstance(error, UnicodeDecodeError):
                raise refuse("is not UTF-8 text", path) from None
            raise refuse(f"{path!r} is outside the state tree", wanted_by, line) from None
        except OSError as error:
            raise refuse(f"cannot read {path!r}: {error.strerror}", wanted_by, line) from None

    def missing(self, sls: str) -> str:
        """What to tell a person about an SLS that is not there."""
        base = sls.replace(".", "/")
        return f"no SLS {sls!r} (neither {base}.sls nor {base}/init.sls){did_you_mean(sls, self.names())}"


def locate_tree(path: Path, sls: Optional[List[str]] = None) -> Tuple[Tree, Optional[List[str]]]:
    """The tree and the SLS that a person means by a path: a file, or a folder with `top.sls` or `init.sls`.

    No list of SLS means: what `top.sls` says.
    """
    if path.is_file():
        if path.suffix != ".sls":
            raise refuse(f"{path} is not a .sls file")
        return Tree(path.parent), [path.stem]
    if not path.is_dir():
        raise refuse(f"there is no file or folder {path}")
    tree = Tree(path)
    if sls:
        return tree, sls
    if (path / "top.sls").is_file():
        return tree, None
    if (path / "init.sls").is_file():
        return tree, ["init"]
    raise refuse(f"{path} has neither top.sls nor init.sls; name a .sls file, or use --sls")


def merge_variables(below: Dict[str, Any], above: Dict[str, Any]) -> Dict[str, Any]:
    """Two layers of variables: mappings are merged, of anything else the upper one wins."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            value = merge_variables(merged[key], value)
        merged[key] = value
    return merged
