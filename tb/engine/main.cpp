// The simulator's main: a VPI event loop for cocotb around one Verilated model.
//
// One time step calls VPI in the order of IEEE 1800-2017 4.4 as far as cocotb uses it: next-time
// callbacks, timed callbacks, then evaluation and value changes until nothing moves, read-write
// callbacks (which may move things again), and read-only callbacks last.
//
// In a machine build (GLASS_MACHINE in glass_config.h) the main drives the clock: see driven.h.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "Vtop.h"
#include "glass_config.h"
#include "verilated.h"
#include "verilated_vpi.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

extern "C" void vlog_startup_routines_bootstrap(void);

namespace {

constexpr QData kNever = ~QData{0};

uint64_t g_time = 0;  // in time-precision units
bool g_python = true;  // Python has run in this time step: it may have registered anything
std::unique_ptr<Vtop> g_top;
#if VM_TRACE
std::unique_ptr<VerilatedVcdC> g_waves;
#endif

void call(uint32_t reason) {
    if (VerilatedVpi::callCbs(reason)) g_python = true;
}

void call_value_changes() {
    while (VerilatedVpi::callValueCbs()) g_python = true;
}

void dump_waves() {
#if VM_TRACE
    if (g_waves) g_waves->dump(g_time);
#endif
}

// Evaluate, apply the writes that callbacks asked for, until the model is at rest. `flip` inverts
// the clock where a write of it by a timed callback would take effect.
void settle(bool flip) {
    do {
        bool again = false;
        do {
            g_top->eval_step();
            VerilatedVpi::clearEvalNeeded();
            VerilatedVpi::doInertialPuts();
            again = flip;
#ifdef GLASS_MACHINE
            if (flip) g_top->clk = !g_top->clk;
#endif
            flip = false;
            call_value_changes();
        } while (again || VerilatedVpi::evalNeeded());
        call(cbReadWriteSynch);
        VerilatedVpi::doInertialPuts();
        call_value_changes();
    } while (VerilatedVpi::evalNeeded());
}

void end_step() {
    g_top->eval_end_step();
    call(cbReadOnlySynch);
    dump_waves();
}

void begin_step(QData time) {
    g_time = time;
    call(cbNextSimTime);
    call_value_changes();
    call(cbAfterDelay);
    call_value_changes();
}

QData next_deadline() {
    QData next = VerilatedVpi::cbNextDeadline();
    if (VerilatedVpi::hasCbs(cbAfterDelay)) next = g_time;
    if (g_top->eventsPending()) next = std::min(next, QData{g_top->nextTimeSlot()});
    return next;
}

// cocotb drives everything, as under its own main.
void run_stock() {
    settle(false);
    end_step();
    while (!Verilated::gotFinish()) {
        const QData next = next_deadline();
        if (next == kNever) break;  // nothing will ever happen again
        begin_step(next);
        settle(false);
        end_step();
    }
}

void finish() {
    VerilatedVpi::callCbs(cbEndOfSimulation);
#if VM_TRACE
    if (g_waves) g_waves->close();
#endif
}

}  // namespace

double sc_time_stamp() { return static_cast<double>(g_time); }

#ifdef GLASS_MACHINE
#include "driven.h"
#endif

int main(int argc, char** argv) {
    const char* waves_path = nullptr;
    bool stock_clock = false;
    for (int i = 1; i < argc; ++i) {
        if (!std::strcmp(argv[i], "--waves") && i + 1 < argc) waves_path = argv[i + 1];
        if (!std::strcmp(argv[i], "--stock-clock")) stock_clock = true;
    }
    Verilated::commandArgs(argc, argv);
    g_top = std::make_unique<Vtop>("");
    Verilated::fatalOnVpiError(false);  // cocotb probes for things that a model may lack
#if VM_TRACE
    Verilated::traceEverOn(true);
    if (waves_path) {
        g_waves = std::make_unique<VerilatedVcdC>();
        g_top->trace(g_waves.get(), 99);
        g_waves->open(waves_path);
    }
#else
    if (waves_path) {
        VL_PRINTF("this simulator was built without waves\n");
        return 2;
    }
#endif
    vlog_startup_routines_bootstrap();
    Verilated::addExitCb([](void*) { finish(); }, nullptr);
#ifdef GLASS_MACHINE
    g_machine = std::make_unique<Machine>(g_top.get());
#endif
    call(cbStartOfSimulation);
    call_value_changes();
#ifdef GLASS_MACHINE
    if (!stock_clock) run_driven();
    else run_stock();
#else
    (void)stock_clock;
    run_stock();
#endif
    g_top->final();
    finish();
    const int errors = Verilated::threadContextp()->errorCount();
#if VM_TRACE
    g_waves.reset();  // before the model that it refers to
#endif
    g_top.reset();
    return errors > 0 ? 1 : 0;
}
