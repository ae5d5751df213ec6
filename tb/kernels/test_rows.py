"""Row reductions, softmax and layer norm against numpy."""

import numpy as np
import pytest
from numpy.typing import NDArray

from runtime.kernels.row_source import (
    CHUNKS,
    LONG_CHUNKS,
    LONG_ROW,
    MOST_ROWS,
    REDUCTIONS,
    WHOLE_COLUMNS,
    RowTiles,
    add_row_source,
    layer_norm_source,
    reduce_source,
    row_tiles,
    softmax_source,
)
from tb.kernels.library import run_kernel

ROWS, CHUNK = CHUNKS.rows, CHUNKS.columns
IN_CHUNKS = [(0, 5), (1, 1), (ROWS + 1, 17), (3, CHUNK), (ROWS, CHUNK + 1), (7, 2 * CHUNK - 1)]
WHOLE = [(0, 5), (1, 1), (2 * MOST_ROWS + 1, 17), (17, 64), (20, 65), (3, 1000), (3, 2048)]
LONG = LONG_CHUNKS.columns
IN_LONG_CHUNKS = [(0, 5), (1, 1), (3, LONG), (2, LONG + 1), (3, 3 * LONG - 1), (1, LONG_ROW + 3)]
CASES = [
    *((shape, CHUNKS) for shape in IN_CHUNKS),
    *((shape, LONG_CHUNKS) for shape in IN_LONG_CHUNKS),
    *((shape, row_tiles(shape[1])) for shape in WHOLE),
]


def matrix(shape: tuple[int, int]) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32) * 3


@pytest.mark.parametrize(("shape", "tiles"), CASES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, shape: tuple[int, int], tiles: RowTiles) -> None:
    x = matrix(shape)
    out = np.zeros(shape[0], np.float32)
    got = run_kernel(reduce_source(name, tiles), [x], out, [*shape, 1 / shape[1]])
    expected = getattr(np, name)(x.astype(np.float64), axis=1)
    exact = name in ("max", "min")
    tolerance = 0.0 if exact else 1e-6 * np.abs(x).sum(axis=1).max(initial=1)
    assert np.allclose(got, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("shape", "tiles"), CASES)
def test_add_row(shape: tuple[int, int], tiles: RowTiles) -> None:
    x, row = matrix(shape), matrix((1, shape[1]))[0]
    got = run_kernel(add_row_source(tiles), [x, row], np.zeros_like(x), shape)
    assert np.array_equal(got, x + row)


@pytest.mark.parametrize(("shape", "tiles"), CASES)
def test_softmax(shape: tuple[int, int], tiles: RowTiles) -> None:
    x = matrix(shape)
    got = run_kernel(softmax_source(tiles), [x], np.zeros_like(x), shape)
    power = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True, initial=-1e9))
    assert np.allclose(got, power / power.sum(axis=1, keepdims=True), rtol=3e-6, atol=0)


@pytest.mark.parametrize(("shape", "tiles"), CASES)
def test_layer_norm(shape: tuple[int, int], tiles: RowTiles) -> None:
    x = matrix(shape)
    gain, bias = matrix((2, shape[1]))
    got = run_kernel(
        layer_norm_source(tiles), [x, gain, bias], np.zeros_like(x), [*shape, 1 / shape[1], 1e-5]
    )
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    assert np.allclose(got, centred * scale * gain + bias, rtol=1e-5, atol=1e-5)


def test_tiles_take_any_row() -> None:
    for columns in WHOLE_COLUMNS:
        tiles = row_tiles(columns)
        assert tiles.whole
        assert tiles.columns == columns
        assert 1 <= tiles.rows <= MOST_ROWS
        assert row_tiles(columns + 1).columns != columns
    assert row_tiles(0) is row_tiles(WHOLE_COLUMNS[-1] + 1) is row_tiles(LONG_ROW - 1) is CHUNKS
    assert row_tiles(LONG_ROW) is LONG_CHUNKS
