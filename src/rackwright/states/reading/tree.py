"""A tree of state files on disk: the names of its SLS, the text of its files, and the merging of variables.

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
        """Return the file of an SLS, relative to the root; None if there is no such SLS."""
        base = sls.replace(".", "/")
        for candidate in (base + ".sls", base + "/init.sls"):
            if (self.root / candidate).is_file():
                return candidate
        return None

    def names(self) -> List[str]:
        """Return the names of all SLS in the tree, sorted."""
        if self._names is None:
            sls_names = []
            for folder, folders, files in os.walk(self.root):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                folder_parts = Path(folder).relative_to(self.root).parts
                for name in sorted(files):
                    if (
                        name.endswith(".sls")
                        and not (folder_parts == () and name == "top.sls")
                        and folder_parts[:1] != ("vars",)
                    ):
                        stem = name[: -len(".sls")]
                        sls_names.append(
                            ".".join(folder_parts if stem == "init" and folder_parts else (*folder_parts, stem))
                        )
            self._names = sorted(set(sls_names))
        return self._names

    def read(self, path: str, referrer: str = "", line: int = 0) -> str:
        """Return the text of a file of the tree. `referrer` and `line` are where the file is named, for the error."""
        try:
            full_path = (self.root / path).resolve()
            full_path.relative_to(self.root)
            return full_path.read_text(encoding="utf-8")
        except ValueError as error:
            if isinstance(error, UnicodeDecodeError):
                raise refuse("is not UTF-8 text", path) from None
            raise refuse(f"{path!r} is outside the state tree", referrer, line) from None
        except OSError as error:
            raise refuse(f"cannot read {path!r}: {error.strerror}", referrer, line) from None

    def missing_message(self, sls: str) -> str:
        """Return the error text for an SLS that is not there."""
        base = sls.replace(".", "/")
        return f"no SLS {sls!r} (neither {base}.sls nor {base}/init.sls){did_you_mean(sls, self.names())}"


def locate_tree(path: Path, sls: Optional[List[str]] = None) -> Tuple[Tree, Optional[List[str]]]:
    """Return the tree and the SLS that a path stands for: a file, or a folder with `top.sls` or `init.sls`.

    None in place of a list of SLS stands for those that `top.sls` selects.
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


def merge_variables(lower: Dict[str, Any], upper: Dict[str, Any]) -> Dict[str, Any]:
    """Merge two layers of variables: mappings are merged, for anything else the upper layer wins."""
    merged = dict(lower)
    for key, value in upper.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            value = merge_variables(merged[key], value)
        merged[key] = value
    return merged
