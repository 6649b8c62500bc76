"""Errors in three parts: what is wrong, where, and what to do next.

Every exception that headrace raises is an `Error`. Each kind also derives from the built-in exception that fits it, so that `except
ValueError` and `except FileNotFoundError` catch it.
"""
from __future__ import annotations


class Error(Exception):
    """Base of all errors of headrace. `where` and `next` may be empty; their line is then omitted.

        headrace.UsageError: batch_size is 0
          where    headrace.exact(dataset, batch_size=0)
          next     give the number of samples in a batch, 1 or more
    """

    def __init__(self, what: str, where: str = "", next: str = ""):
        super().__init__(what)
        self.what, self.where, self.next = what, where, next

    def __str__(self) -> str:
        return self._lines(self.what, 2)

    def text(self) -> str:
        """The error as a command shows it, with its kind first."""
        return self._lines(f"{type(self).__name__}  {self.what}", len(type(self).__name__) + 2)

    def _lines(self, first: str, indent: int) -> str:
        lines = [first.rstrip("\n").replace("\n", "\n" + " " * indent)]
        for label, part in (("where", self.where), ("next", self.next)):
            if part:
                lines.append(f"  {label:<9}" + part.rstrip("\n").replace("\n", "\n" + " " * 11))
        return "\n".join(lines)

    def __reduce__(self):
        return type(self), (self.what, self.where, self.next)


class UsageError(Error, ValueError):
    """A value that an argument, an option or a command does not accept."""


class KindError(Error, TypeError):
    """A value whose type the argument does not accept."""


class StateError(Error, ValueError):
    """A saved state that does not belong to this loader."""


class MomentError(Error, RuntimeError):
    """A call that is not possible at this moment."""


class DataError(Error, RuntimeError):
    """A sample that can't be read, or samples that can't be combined to a batch. `__cause__` is the exception of the dataset."""


class FileError(Error, OSError):
    """A file that can't be read or written."""

    # OSError takes several arguments for errno and file names.
    def __new__(cls, *arguments: str):
        return OSError.__new__(cls, arguments[0] if arguments else "")


class MissingError(FileError, FileNotFoundError):
    """A file, a folder or a program that does not exist."""


class PackageError(Error, ImportError):
    """A Python package that is needed but not installed."""


# Tracebacks show the module from which users import them.
for _kind in (Error, UsageError, KindError, StateError, MomentError, DataError, FileError, MissingError, PackageError):
    _kind.__module__ = "headrace"
del _kind
