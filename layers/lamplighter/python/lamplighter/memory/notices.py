"""Notices that are kept in a list: what a test asks whom they went to."""

from dataclasses import dataclass, field

from lamplighter.core.errors import Unavailable
from lamplighter.core.notices import Notice


@dataclass(kw_only=True)
class MemoryNotices:
    """`ports.Notices`: everything that was told, in order."""

    given: list[Notice] = field(default_factory=list)
    is_down: bool = False
    """Whether nothing is taken."""

    def tell(self, notice: Notice) -> None:
        if self.is_down:
            raise Unavailable("nobody takes notices")
        self.given.append(notice)

    def of(self, execution_id: str) -> list[Notice]:
        """Those about one execution."""
        return [one for one in self.given if one.detail["execution_id"] == execution_id]
