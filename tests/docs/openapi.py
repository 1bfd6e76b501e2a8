"""The committed OpenAPI description: `python -m tests.docs.openapi` writes it again."""

from pathlib import Path
from typing import Final

from lamplighter.api import openapi

PAGE: Final = Path(__file__).parents[2] / "docs" / "openapi.json"

if __name__ == "__main__":
    PAGE.write_text(openapi.text(), encoding="utf-8")
