"""The release, for those who run where no package metadata is installed: in Lambda, a layer."""

from typing import Final

VERSION: Final = "0.1.0"
