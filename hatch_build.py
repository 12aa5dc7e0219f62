"""The build hook: a wheel carries the built web page. An editable install does not build it; `make ui` does."""

import os
import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WebPage(BuildHookInterface):  # type: ignore[type-arg]  # not generic when hatchling runs it
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel" and version == "standard":
            subprocess.run(
                ["scripts/ui"], cwd=self.root, env=os.environ | {"RACKWRIGHT_PYTHON": sys.executable}, check=True
            )
