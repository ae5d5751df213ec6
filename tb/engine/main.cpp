// The simulator's main: a VPI event loop for cocotb around one Verilated model.
//
// One time step calls VPI in the order of IEEE 1800-2017 4.4 as far as cocotb uses it: next-time
// callbacks, timed callbacks, then evaluation and value changes until nothing moves, read-write
// callbacks (which may move things again), and read-only callbacks last.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "Vtop.h"
#include "verilated.h"
#include "verilated_vpi.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

extern "C" void vlog_startup_routines_bootstrap(void);

namespace {

constexpr QData kNever = ~QData{0};

uint64_t g_time = 0;  // in time-precision units
std::unique_ptr<Vtop> g_top;
#if VM_TRACE
std::unique_ptr<VerilatedVcdC> g_waves;
#endif

void call_value_changes() {
    while (VerilatedVpi::callValueCbs()) {
    }
}

// Evaluate, apply the writes that callbacks asked for, until the model is at rest.
void settle() {
    do {
        do {
            g_top->eval_step();
            VerilatedVpi::clearEvalNeeded();
            VerilatedVpi::doInertialPuts();
            call_value_changes();
        } while (VerilatedVpi::evalNeeded());
        VerilatedVpi::callCbs(cbReadWriteSynch);
        VerilatedVpi::doInertialPuts();
        call_value_changes();
    } while (VerilatedVpi::evalNeeded());
    g_top->eval_end_step();
}

void dump_waves() {
#if VM_TRACE
    if (g_waves) g_waves->dump(g_time);
#endif
}

void finish() {
    VerilatedVpi::callCbs(cbEndOfSimulation);
#if VM_TRACE
    if (g_waves) g_waves->close();
#endif
}

}  // namespace

double sc_time_stamp() { return static_cast<double>(g_time); }

int main(int argc, char** argv) {
    const char* waves_path = nullptr;
    for (int i = 1; i + 1 < argc; ++i) {
        if (!std::strcmp(argv[i], "--waves")) waves_path = argv[i + 1];
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
    VerilatedVpi::callCbs(cbStartOfSimulation);
    call_value_changes();

    while (!Verilated::gotFinish()) {
        settle();
        VerilatedVpi::callCbs(cbReadOnlySynch);
        dump_waves();
        QData next = VerilatedVpi::cbNextDeadline();
        if (g_top->eventsPending()) next = std::min(next, QData{g_top->nextTimeSlot()});
        if (next == kNever) break;  // nothing will ever happen again
        g_time = next;
        VerilatedVpi::callCbs(cbNextSimTime);
        call_value_changes();
        VerilatedVpi::callTimedCbs();
        call_value_changes();
    }
    g_top->final();
    finish();
    const int errors = Verilated::threadContextp()->errorCount();
    g_top.reset();
    return errors > 0 ? 1 : 0;
}
