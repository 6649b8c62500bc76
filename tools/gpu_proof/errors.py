"""Errors for people: what, where, what next."""


class ProofError(Exception):
    """Ends the command; its text has the three parts."""

    def __init__(self, what, where, next_):
        super().__init__(f"Error  {what}\n  where    {where}\n  next     {next_}")
