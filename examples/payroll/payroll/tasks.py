"""What is done: the salaries of a month are paid, and the books of a day are closed."""

from pydantic import BaseModel

from lamplighter import Context, task
from payroll.bank import Bank, BankInMemory

bank: Bank = BankInMemory()
"""Whoever runs this in earnest puts a real one here."""


class Salaries(BaseModel):
    """Cents by employee."""

    employees: dict[str, int]


@task("pay_salaries")
def pay_salaries(salaries: Salaries, ctx: Context) -> dict[str, str]:
    """Pay everybody once, whoever dies when.

    A try that comes after another does not ask the bank again for whom that one has noted; for
    whom it had paid, but not noted, the reference is the same, so the bank pays once.
    """

    def pay(employee: str, cents: int) -> str:
        reference = f"{ctx.idempotency_key}/{employee}"
        return str(ctx.once(employee, lambda: bank.pay(employee, cents, reference=reference)))

    return {employee: pay(employee, cents) for employee, cents in salaries.employees.items()}


@task("close_day")
def close_day(_: object, ctx: Context) -> None:
    """Close the books of a day, in one transaction with the end of this execution: just once."""
    day = ctx.scheduled_for.date().isoformat()
    closed = {"day": {"S": day}, "closed_by": {"S": ctx.execution_id}}
    ctx.complete_with([{"Put": {"TableName": "closed-days", "Item": closed}}])
