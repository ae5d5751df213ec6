"""Strided ranges of bytes in global memory, and whether two of them overlap."""

from dataclasses import dataclass

__all__ = ["Region"]


@dataclass(frozen=True, slots=True)
class Region:
    """Planes of rows of bytes: row r of plane p starts at start + p * plane_stride + r * stride.

    Made by `Region.of`, which brings it to a form where strides are positive, and rows or planes
    that touch or overlap are one.
    """

    start: int
    row_bytes: int
    rows: int = 1
    stride: int = 0
    planes: int = 1
    plane_stride: int = 0

    @classmethod
    def of(
        cls,
        start: int,
        row_bytes: int,
        rows: int = 1,
        stride: int = 0,
        planes: int = 1,
        plane_stride: int = 0,
    ) -> "Region":
        """The region of these rows; strides may be negative or zero."""
        if stride < 0:
            start, stride = start + (rows - 1) * stride, -stride
        if plane_stride < 0:
            start, plane_stride = start + (planes - 1) * plane_stride, -plane_stride
        if stride == 0:
            rows = 1
        if plane_stride == 0:
            planes = 1
        if stride <= row_bytes:
            row_bytes, rows = row_bytes + (rows - 1) * stride, 1
        if rows == 1:
            rows, stride, planes, plane_stride = planes, plane_stride, 1, 0
            if stride <= row_bytes:
                row_bytes, rows, stride = row_bytes + (rows - 1) * stride, 1, 0
        elif plane_stride == rows * stride:
            rows, planes, plane_stride = rows * planes, 1, 0
        return cls(
            start,
            row_bytes,
            rows,
            stride if rows > 1 else 0,
            planes,
            plane_stride if planes > 1 else 0,
        )

    @property
    def end(self) -> int:
        """First address behind it."""
        return (
            self.start
            + (self.planes - 1) * self.plane_stride
            + (self.rows - 1) * self.stride
            + self.row_bytes
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.row_bytes * self.rows * self.planes

    def overlaps(self, other: "Region") -> bool:
        """Whether any byte is in both; exact."""
        if self.start >= other.end or other.start >= self.end:
            return False
        if self.planes == other.planes == 1 and (
            self.stride == other.stride or self.rows == 1 or other.rows == 1
        ):
            return self._meets_at_same_stride(other)
        few, many = sorted((self, other), key=lambda region: region.rows * region.planes)
        for plane in _meeting(
            few.start, few.plane_stride, few.planes, few._plane_bytes, many.start, many.end
        ):
            first = few.start + plane * few.plane_stride
            for row in _meeting(first, few.stride, few.rows, few.row_bytes, many.start, many.end):
                begin = first + row * few.stride
                if many._meets(begin, begin + few.row_bytes):
                    return True
        return False

    @property
    def _plane_bytes(self) -> int:
        return (self.rows - 1) * self.stride + self.row_bytes

    def _meets(self, begin: int, end: int) -> bool:
        """Whether it has a byte from begin on and below end."""
        for plane in _meeting(
            self.start, self.plane_stride, self.planes, self._plane_bytes, begin, end
        ):
            first = self.start + plane * self.plane_stride
            if _meeting(first, self.stride, self.rows, self.row_bytes, begin, end):
                return True
        return False

    def _meets_at_same_stride(self, other: "Region") -> bool:
        """Rows of one plane whose distances from each other are multiples of one stride."""
        stride = self.stride or other.stride
        # Row i of this and row j of the other are `distance + (i - j) * stride` apart.
        first = self.start - (other.rows - 1) * stride
        rows = self.rows + other.rows - 1
        end = other.start + other.row_bytes
        return bool(_meeting(first, stride, rows, self.row_bytes, other.start, end))


def _meeting(start: int, stride: int, count: int, nbytes: int, begin: int, end: int) -> range:
    """Which of `count` ranges, `nbytes` at start + i * stride, have a byte in [begin, end)."""
    if stride == 0:
        return range(1 if start < end and start + nbytes > begin else 0)
    first = max(0, (begin - nbytes - start) // stride + 1)
    last = min(count - 1, -((start - end) // stride) - 1)
    return range(first, last + 1)
