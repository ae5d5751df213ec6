"""What the compiler refuses."""

from driver.errors import InvalidArgumentError

__all__ = ["CompileError"]


class CompileError(InvalidArgumentError):
    """A kernel does not fit the core, or breaks a rule of the language."""
