"""Histories for those who only look at what is made of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Final
from unittest.mock import patch

from lamplighter.sim import simulate
from lamplighter.sim.simulation import Setup

SHORT: Final = partial(Setup, trouble=timedelta(minutes=8), rest=timedelta(minutes=21))


@contextmanager
def short_histories() -> Iterator[None]:
    """Each that is begun meanwhile has some minutes of trouble."""
    with patch.object(simulate, "Setup", SHORT):
        yield
