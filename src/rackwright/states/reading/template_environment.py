"""The Jinja environment of templates: its sandbox, variables and filters. Loaded only in the child that renders.

The names follow Salt where people have habits: `pillar` and `grains` are our variables and the node's facts, and
`salt['pillar.get']('a:b', default)` looks into nested ones.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Callable, Dict, Optional, Tuple

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..refusal import RunRefused
from .tree import Tree


class _TreeLoader(jinja2.BaseLoader):
    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> Tuple[str, Optional[str], Optional[Callable[[], bool]]]:
        path = template[len("salt://") :] if template.startswith("salt://") else template
        try:
            return self._tree.read(path), path, lambda: True
        except RunRefused:
            raise jinja2.TemplateNotFound(template) from None


def make_environment(tree: Tree) -> jinja2.Environment:
    """Return a sandboxed environment that loads templates from the tree and refuses undefined names."""
    jinja_environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        loader=_TreeLoader(tree),
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"],
    )
    jinja_environment.filters.update(
        json=lambda value, **options: json.dumps(value, **options),
        yaml=_yaml,
        yaml_encode=_yaml,
        yaml_dquote=lambda value: json.dumps(str(value)),
        yaml_squote=lambda value: "'" + str(value).replace("'", "''") + "'",
        quote=lambda value: shlex.quote(str(value)),
        regex_replace=lambda value, pattern, new: re.sub(pattern, new, str(value)),
        to_bool=lambda value: str(value).lower() in ("yes", "1", "true"),
    )
    return jinja_environment


def _yaml(value: Any, default_flow_style: bool = True) -> str:
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=default_flow_style, width=1 << 20)
    return text[: -len("...\n")].strip() if text.endswith("...\n") else text.strip()


def template_variables(variables: Dict[str, Any], node: Dict[str, Any]) -> Dict[str, Any]:
    """Return the names a template sees: variables as such and as `pillar` or `vars`, facts as `grains` or `node`."""
    return {
        **variables,
        "vars": variables,
        "pillar": variables,
        "node": node,
        "grains": node,
        "salt": {"pillar.get": _make_getter(variables), "grains.get": _make_getter(node)},
    }


def _make_getter(source: Dict[str, Any]) -> Callable[..., Any]:
    def get(path: str, default: Any = "") -> Any:
        value: Any = source
        for part in path.split(":"):
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value

    return get
