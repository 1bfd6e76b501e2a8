"""What a test that draws a fresh seed says, so that somebody can see the same again."""

from typing import Final

REPEATED_BY: Final = "repeated by"
"""The property of such a test: the command that does the same."""
