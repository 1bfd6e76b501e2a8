"""Where the parts lie that are deployed."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FUNCTIONS: Final = ROOT / "functions"
CODE_LAYER: Final = ROOT / "layers" / "lamplighter"
RUNTIME_REQUIREMENTS: Final = ROOT / "layers" / "dependencies" / "requirements.txt"
PLAYGROUND: Final = ROOT / "examples" / "playground"
BUILD: Final = ROOT / ".build"
