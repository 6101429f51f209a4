"""The one error that reaches the person at the keyboard."""


class LabError(Exception):
    """Says in one sentence what could not be done, and what to do about it where that is known."""
