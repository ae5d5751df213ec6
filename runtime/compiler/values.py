"""Which scalar expressions are the same, and on which variables they depend."""

from runtime.compiler.scalar import Argument, Binary, Constant, Scalar, SpecialValue, Variable

__all__ = ["Values", "operations_in"]


class Values:
    """Gives all equal expressions of a kernel one representative: `canonical` ones are equal if
    they are the same object."""

    def __init__(self) -> None:
        self._first: dict[tuple[object, ...], Scalar] = {}
        self._canonical: dict[Scalar, Scalar] = {}
        self._leaves: dict[Scalar, frozenset[Variable]] = {}

    def canonical(self, value: Scalar) -> Scalar:
        """The representative of an expression."""
        found = self._canonical.get(value)
        if found is None:
            found = self._canonical[value] = self._make(value)
            self._canonical[found] = found
        return found

    def _make(self, value: Scalar) -> Scalar:
        match value:
            case Constant():
                return self._first.setdefault((Constant, value.value), value)
            case Argument():
                return self._first.setdefault((Argument, value.offset), value)
            case SpecialValue():
                return self._first.setdefault((SpecialValue, value.special), value)
            case Binary():
                left, right = self.canonical(value.left), self.canonical(value.right)
                key = value.operation, left, right
                found = self._first.get(key)
                if found is None:
                    found = self._first[key] = Binary(value.operation, left, right)
                return found
        return value

    def variables(self, value: Scalar) -> frozenset[Variable]:
        """The variables in an expression."""
        found = self._leaves.get(value)
        if found is None:
            match value:
                case Variable():
                    found = frozenset((value,))
                case Binary():
                    found = self.variables(value.left) | self.variables(value.right)
                case _:
                    found = frozenset()
            self._leaves[value] = found
        return found


def operations_in(value: Scalar) -> int:
    """How many operations an expression takes."""
    if not isinstance(value, Binary):
        return 0
    return 1 + operations_in(value.left) + operations_in(value.right)
