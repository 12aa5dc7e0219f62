"""What the loader finds out about a `roles.py`, in a process of its own, and what it refuses."""

import os
import re
from pathlib import Path

import pytest

from rackwright.barclamps.loader import load_folder
from rackwright.domain.errors import BarclampInvalid
from rackwright.domain.hooks import ALIASES, HOOKS

HEAD = "from rackwright.domain.hooks import RoleHooks\n"
PAGE = (Path(__file__).parents[3] / "docs" / "hooks.md").read_text()


def _folder(path: Path, code: str, roles: str = "web") -> Path:
    (path / "barclamp.yml").write_text(
        "name: web\nroles:\n" + "".join(f"  - {{name: {role}, jig: noop}}\n" for role in roles.split())
    )
    (path / "roles.py").write_text(code)
    return path


def test_which_hooks_each_role_implements_is_found_without_running_it_here(tmp_path: Path) -> None:
    code = (
        f"{HEAD}import os\nos.environ['ROLES_WERE_HERE'] = '1'\nprint('loud')\n"
        "class Base(RoleHooks):\n    def on_active(self, noderole): ...\n"
        "class Web(Base):\n    role = 'web'\n    def on_node_change(self, node): ...\n"
        "class Mail(Base):\n    role = 'mail'\n    def do_transition(self, noderole): ...\n"
    )
    loaded = load_folder(_folder(tmp_path, code, "web mail dns"))
    assert {role.name: role.hooks for role in loaded.roles} == {
        "web": {"on_active", "on_node_update"},
        "mail": {"on_active", "do_transition"},
        "dns": frozenset(),
    }
    assert "ROLES_WERE_HERE" not in os.environ
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(
    ("code", "line", "reason"),
    [
        ("def x(:\n", 1, "SyntaxError"),
        ("\n\nimport no_such_module\n", 3, "ModuleNotFoundError"),
        (f"{HEAD}class A(RoleHooks):\n    role = 'wab'\n", 1, "did you mean 'web'"),
        (f"{HEAD}class A(RoleHooks):\n    role = 'web'\nclass B(RoleHooks):\n    role = 'web'\n", 1, "second of role"),
        ("import os\nos._exit(1)\n", 1, "died"),
    ],
)
def test_a_wrong_file_stops_the_import_with_line_and_reason(tmp_path: Path, code: str, line: int, reason: str) -> None:
    with pytest.raises(BarclampInvalid, match=reason) as caught:
        load_folder(_folder(tmp_path, code))
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "roles.py"), line)


def test_the_page_about_hooks_names_each_and_its_examples_are_right(tmp_path: Path) -> None:
    table = PAGE.split("## When which hook is called\n", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"`(on_\w+|do_transition)`", table)) == HOOKS | ALIASES.keys()
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    # The page shows roles that come with Rackwright; nobody else may declare those.
    code = "\n".join(examples).replace("provisioner-", "my-")
    loaded = load_folder(_folder(tmp_path, code, "my-os-install my-dhcp-database web-farm"))
    assert [sorted(role.hooks) for role in loaded.roles] == [
        ["on_active", "on_node_bind"],
        ["on_node_update"],
        ["do_transition"],
    ]
