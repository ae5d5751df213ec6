"""`bench engine`: how fast the machine runs, beside a bare Verilator loop and the stock runner.

The ratios are measured on the same RTL and the same job, a chain of matrix products. Hosted time
and bare time alternate in one process; the stock build runs in a process of its own, in turn with
it. How the speed depends on what works: `idle`, `vector_only` (one unit of one core), `busy` (the
products, on both cores) and `all_busy` (a product on one core, the vector unit of the other one,
copies), in cycles a second each.
"""

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from abi.geometry import CORES
from runtime import Device, gemm
from runtime.kernels.buffers import core_buffers
from runtime.kernels.element_source import unary_source
from tb.bench.errors import BenchError
from tb.bench.figures import hosted_figures, write_figures
from tb.bench.gemm import gemm_on_one_core
from tb.bench.stock import stock_clock_cycles, stock_simulator
from tb.engine.host import Machine, current_machine

__all__ = ["hosted", "hosted_stock", "measure"]

SIZE = 512
PRODUCTS = 4
BUSY_STRETCH = 20_000
IDLE_STRETCH = 100_000
SHORT_STRETCH = 10_000
SHORT_PAIRS = 5
VECTOR_ELEMENTS = 1 << 15
"""The vector unit has work for about 100,000 cycles."""
COPIES = 4
COPY_BYTES = 1 << 20
STOCK_STRETCH = 4_000
PAIRS = 15
ROUNDS = 3


def measure(seed: int) -> dict[str, float]:
    """Figures: cycles a second, and ratios of medians; see the page on the engine."""
    build = stock_simulator()
    rounds: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        own = hosted_figures("tb.bench.engine:hosted", seed)
        stock = hosted_figures("tb.bench.engine:hosted_stock", seed, build=build, agents=True)
        rounds.append(own | stock)
    figures = {name: median(each[name] for each in rounds) for name in rounds[0]}
    figures["cosim_over_bare"] = median(
        each["busy_cycles_per_s"] / each["bare_cycles_per_s"] for each in rounds
    )
    figures["cosim_over_stock"] = median(
        each["busy_cycles_per_s"] / each["stock_cycles_per_s"] for each in rounds
    )
    figures["idle_over_busy"] = median(
        each["idle_cycles_per_s"] / each["busy_cycles_per_s"] for each in rounds
    )
    return figures


def _rate(cycles: int, run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return cycles / (time.perf_counter() - begun)


def _start_job(device: Device, products: int) -> None:
    """Submit a chain of products that outlasts the measurement."""
    random = np.random.default_rng(0)
    a, b = (device.array(random.integers(-128, 128, (SIZE, SIZE), dtype=np.int8)) for _ in range(2))
    out = device.empty((SIZE, SIZE), np.int32)
    stream = device.default_stream
    with stream.batch():
        for _ in range(products):
            gemm(a, b, out=out, stream=stream)
    current_machine().actors.sleep(device.bus.now() + 20_000)


def _must_be_busy(device: Device, cores: int = 1) -> None:
    state = device.driver.registers.bar0.core_state
    if sum(state[core].field("busy") for core in range(CORES)) < cores:
        raise BenchError("the job ended before the measurement")


def _start_vector(device: Device) -> None:
    """Submit work for the vector unit of one core: one block."""
    code = unary_source("gelu").compile(core_buffers(device))
    x = device.array(np.ones(VECTOR_ELEMENTS, np.float32))
    out = device.empty(VECTOR_ELEMENTS, np.float32)
    device.load(code).kernel().launch(1, x, out, VECTOR_ELEMENTS)


def _start_copies(device: Device) -> None:
    """Submit copies to the host, on a stream of their own."""
    far, near = device.empty(COPY_BYTES, np.uint8), device.pinned(COPY_BYTES, np.uint8)
    stream = device.stream()
    for _ in range(COPIES):
        device.memcpy_async(near, far, stream)


def _start_one_product(device: Device) -> None:
    """Submit a product for one core, on a stream of its own."""
    a, b = (device.array(np.ones((SIZE, SIZE), np.int8)) for _ in range(2))
    gemm_on_one_core(a, b, device.empty((SIZE, SIZE), np.int32), device.stream())


def _short(machine: Machine, device: Device, cores: int) -> float:
    """Speed while a job of about 100,000 cycles runs."""
    machine.actors.sleep(device.bus.now() + SHORT_STRETCH)
    speed = median(_sleep(machine, SHORT_STRETCH) for _ in range(SHORT_PAIRS))
    _must_be_busy(device, cores)
    device.synchronize(timeout=1 << 32)
    return speed


def hosted(path: str) -> None:
    """Measure hosted, bare and idle speed inside our machine."""
    from tb.engine.native import NativeClockwork  # Binds symbols that only our main has.

    machine = current_machine()
    clockwork = machine.clockwork
    if not isinstance(clockwork, NativeClockwork):
        raise BenchError("only our own main can run the clock without Python")
    with Device() as device:
        idle = [_sleep(machine, IDLE_STRETCH) for _ in range(PAIRS)]
        _start_vector(device)
        vector = _short(machine, device, 1)
        _start_one_product(device)
        _start_vector(device)
        _start_copies(device)
        everything = _short(machine, device, CORES)
        _start_job(device, PRODUCTS)
        busy, bare = [], []
        for _ in range(PAIRS):
            busy.append(_sleep(machine, BUSY_STRETCH))
            bare.append(_rate(BUSY_STRETCH, lambda: clockwork.bare_run(BUSY_STRETCH)))
        _must_be_busy(device)
        device.synchronize(timeout=1 << 32)
    write_figures(
        path,
        {
            "busy_cycles_per_s": median(busy),
            "bare_cycles_per_s": median(bare),
            "idle_cycles_per_s": median(idle),
            "vector_only_cycles_per_s": vector,
            "all_busy_cycles_per_s": everything,
        },
    )


def _sleep(machine: Machine, cycles: int) -> float:
    """Speed of a host thread's wait, the firmware included."""
    return _rate(cycles, lambda: machine.actors.sleep(machine.bus.now() + cycles))


def hosted_stock(path: str) -> None:
    """Measure inside the stock build, while a product runs on the device.

    Everything up to there is done by Python agents that turn the clock by hand; then cocotb's
    clock takes over, so that the machine cannot be used any more afterwards.
    """
    machine = current_machine()
    device = Device()
    _start_job(device, 1)
    _must_be_busy(device)
    speeds = [
        _rate(
            STOCK_STRETCH,
            lambda: machine.clockwork.hosting.hand(stock_clock_cycles(STOCK_STRETCH)),
        )
        for _ in range(PAIRS)
    ]
    write_figures(path, {"stock_cycles_per_s": median(speeds)})
