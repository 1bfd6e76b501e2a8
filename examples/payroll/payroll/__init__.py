"""A small company's payroll, as its owner would write it: tasks, their schedules, and tests."""
