"""The bank. It makes a payment once for each reference, however often it is asked to."""

from dataclasses import dataclass, field
from typing import Protocol


class Bank(Protocol):
    """What is asked of it."""

    def pay(self, employee: str, cents: int, *, reference: str) -> str:
        """Pay, unless that reference was paid; the number of the payment."""
        ...


@dataclass(kw_only=True)
class BankInMemory:
    """For tests."""

    payments: dict[str, tuple[str, int]] = field(default_factory=dict)
    asked: int = 0
    """How often it was asked to pay, for whatever reference."""

    def pay(self, employee: str, cents: int, *, reference: str) -> str:
        self.asked += 1
        self.payments.setdefault(reference, (employee, cents))
        return f"payment {[*self.payments].index(reference) + 1}"
