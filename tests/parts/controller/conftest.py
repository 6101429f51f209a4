"""The world of the unit tests, whose controller dies here again and again."""

from tests.unit.controller.conftest import engine, nobody_is_waited_for, one_engine

__all__ = ["engine", "nobody_is_waited_for", "one_engine"]
