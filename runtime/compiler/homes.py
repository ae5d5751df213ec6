"""Which values have a register, or a place in the scalar unit's RAM, for all of a kernel."""

from collections import Counter

from abi.address import LINE_BYTES
from runtime.compiler.ir import Command, Define, Fetch, Loop, Node, When
from runtime.compiler.scalar import Argument, Binary, Constant, Scalar, SpecialValue, Variable
from runtime.compiler.values import Values, operations_in
from runtime.compiler.words import Words

__all__ = ["HOMES", "assign_homes"]

HOMES = (8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 1, 3, 4)
"""Registers of variables: s0 to s11, ra, gp, tp."""

LOOP_WEIGHT = 8
"""How much more a use counts for each loop around it, when registers are given away."""

CHEAP = 2
"""Operations that are sooner done again than loaded from RAM."""


def assign_homes(
    nodes: list[Node], commands: dict[Command, Words], values: Values
) -> tuple[dict[Scalar, int], dict[Scalar, int]]:
    """The registers of the values that are used most, and the RAM bytes of those that need one."""
    uses = _Uses(commands, values)
    uses.visit(nodes, 1)
    candidates = [value for value, _ in uses.weights.most_common() if uses.deserves_home(value)]
    # The scalar unit keeps one line of the argument block.
    several_lines = any(
        isinstance(value, Argument) and value.offset >= LINE_BYTES for value in uses.weights
    )
    spilled = [
        value
        for value in candidates[len(HOMES) :]
        if isinstance(value, Variable)
        or operations_in(value) > CHEAP
        or (isinstance(value, Argument) and several_lines)
    ]
    return (
        dict(zip(candidates, HOMES, strict=False)),
        {value: 4 * i for i, value in enumerate(spilled)},
    )


class _Uses:
    """How often values are used; a use in a loop counts more."""

    def __init__(self, commands: dict[Command, Words], values: Values) -> None:
        self.weights: Counter[Scalar] = Counter()
        self._commands = commands
        self._values = values
        self._defined: dict[Scalar, int] = {}

    def deserves_home(self, value: Scalar) -> bool:
        """A variable, or what is used more than once: in a loop that it does not change in, too."""
        if isinstance(value, Variable):
            return True
        if isinstance(value, Argument | SpecialValue):
            return self.weights[value] > 1
        return value in self._defined and self.weights[value] > self._defined[value]

    def visit(self, nodes: list[Node], weight: int) -> None:
        """Count what a region uses."""
        for node in nodes:
            match node:
                case Command():
                    for word in self._commands[node]:
                        if word is not None:
                            self._use(word, weight)
                case Fetch():
                    self.weights[node.value] += weight
                    self._use(node.offset, weight)
                case Define():
                    self._define(self._values.canonical(node.value), weight)
                case Loop():
                    inside = weight * LOOP_WEIGHT
                    self.weights[node.index] += inside
                    self._use(node.start, weight)
                    self._use(node.stop, inside)
                    self._use(node.step, inside)
                    self._visit_body(node, inside)
                case When():
                    self._use(node.condition, weight)
                    self._visit_body(node, weight)

    def _visit_body(self, node: Loop | When, weight: int) -> None:
        if node.body.slot is not None:
            self.weights[node.body.slot] += weight * LOOP_WEIGHT
        self.visit(node.body.nodes, weight)

    def _define(self, value: Scalar, weight: int) -> None:
        """What a value is made of is used where it is defined, not where it is used."""
        assert isinstance(value, Binary)
        if value not in self._defined:
            self._defined[value] = 0
            self._use(value.left, weight)
            self._use(value.right, weight)
        self._defined[value] = max(weight, self._defined[value])

    def _use(self, value: Scalar, weight: int) -> None:
        value = self._values.canonical(value)
        if isinstance(value, Constant):
            return
        self.weights[value] += weight
        if isinstance(value, Binary) and value not in self._defined:
            self._use(value.left, weight)
            self._use(value.right, weight)
