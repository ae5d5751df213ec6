// The event loop of a machine build, which drives `clk` itself, and its interface to Python.
// Part of main.cpp.
//
// A time step on which no callback can be due (no deadline, no watched signal, no Python since the
// last step) is a plain evaluation, and whole cycles of them run in `run_cycles`. The clock stops
// for Python right after a rising edge has settled, with clk at 1: inputs changed there pass the
// falling edge, where clock gates latch, and act at the next rising edge. There Python runs outside
// any VPI callback, so it may run the clock from inside a call (`glass_run`) as long as cocotb
// needs nothing.
#pragma once

#include <string>

#include "machine.h"

namespace {

constexpr QData kHalf = 500;  // half a cycle of 1 ns at a precision of 1 ps

std::unique_ptr<Machine> g_machine;
QData g_next_edge = kHalf;
bool g_at_stop = false;  // right after a settled rising edge, outside VPI callbacks
bool g_armed = false;    // Python waits for a stop
void (*g_on_stop)() = nullptr;

QData g_dumped = kNever;  // the waves hold each time once

void dump_waves_once() {
#if VM_TRACE
    g_top->eval_end_step();
    if (g_dumped != g_time) dump_waves();
    g_dumped = g_time;
#endif
}

void evaluate(bool clock) {
    g_top->clk = clock;
    g_top->eval_step();
    dump_waves_once();
}

void end_driven_step() {
    call(cbReadOnlySynch);
    dump_waves_once();
}

// Whole cycles without VPI, from one stop point to another.
uint32_t run_cycles(QData deadline) {
    Machine& machine = *g_machine;
    for (;;) {
        const QData rise = g_next_edge + kHalf;
        if (rise >= deadline) return kCocotb;
        g_time = g_next_edge;
        evaluate(false);
        machine.before_edge();
        g_time = rise;
        g_next_edge = rise + kHalf;
        evaluate(true);
        machine.after_edge();
        if (const uint32_t reason = machine.stop()) return reason;
        if (Verilated::gotFinish()) return kFinished;
    }
}

// At a stop point: wake Python as long as what it waits for holds.
void serve_stop() {
    g_at_stop = true;
    while (g_armed && !Verilated::gotFinish()) {
        const uint32_t reason = g_machine->stop();
        if (!reason) break;
        g_armed = false;
        g_python = true;
        g_machine->status[kStop] = reason;
        g_on_stop();
        settle(false);
    }
    g_at_stop = false;
}

void run_driven() {
    settle(false);
    end_driven_step();
    while (!Verilated::gotFinish()) {
        const QData deadline = next_deadline();
        const bool watched = VerilatedVpi::hasCbs(cbValueChange);
        if (!g_python && !watched) {
            if (!g_armed && deadline == kNever) break;  // nobody waits for anything
            if (g_top->clk && run_cycles(deadline) != kCocotb) {
                serve_stop();
                end_driven_step();
                continue;
            }
        }
        g_python = false;
        const QData time = std::min(deadline, g_next_edge);
        const bool edge = time == g_next_edge;
        const bool rising = edge && !g_top->clk;
        begin_step(time);
        if (rising) g_machine->before_edge();
        settle(edge);
        if (edge) g_next_edge += kHalf;
        if (rising) {
            g_machine->after_edge();
            serve_stop();
        }
        end_driven_step();
    }
}

// Whether the clock may run from inside Python: cocotb waits for nothing before the next edge.
bool may_run() {
    return g_at_stop && !VerilatedVpi::hasCbs(cbValueChange)
           && !VerilatedVpi::hasCbs(cbReadWriteSynch) && !VerilatedVpi::hasCbs(cbReadOnlySynch)
           && !VerilatedVpi::hasCbs(cbAfterDelay);
}

uint32_t run_from_python(uint64_t until, uint32_t watch) {
    Machine& machine = *g_machine;
    machine.until = until;
    machine.watch = watch;
    if (Verilated::gotFinish()) return kFinished;
    if (!g_at_stop) return kCocotb;
    if (const uint32_t reason = machine.stop()) return reason;
    if (!may_run()) return kCocotb;
    VerilatedVpi::doInertialPuts();
    if (VerilatedVpi::evalNeeded()) {
        g_top->eval_step();
        VerilatedVpi::clearEvalNeeded();
    }
    return run_cycles(VerilatedVpi::cbNextDeadline());
}

}  // namespace

// Verilator's own prints a line; the standard output belongs to the hosted program.
void vl_finish(const char*, int, const char*) { Verilated::threadContextp()->gotFinish(true); }

extern "C" {

uint64_t* glass_status() { return g_machine->status; }

void glass_on_stop(void (*callback)()) { g_on_stop = callback; }

// Wait for a stop in the main loop: the callback runs at it.
void glass_arm(uint64_t until, uint32_t watch) {
    g_machine->until = until;
    g_machine->watch = watch;
    g_armed = true;
}

// Run the clock now, until a stop or until cocotb needs control.
uint32_t glass_run(uint64_t until, uint32_t watch) { return run_from_python(until, watch); }

void glass_submit(int port, int write, uint64_t address, uint64_t data, uint64_t strobe) {
    g_machine->submit(port, write, address, data, strobe);
}

// An operation from start to end in one call. kTaken: it has ended, nothing else has happened, and
// its result is taken. `operation` is port | write << 8 | strobe << 16.
uint32_t glass_transact(uint32_t operation, uint64_t address, uint64_t data, uint64_t until,
                        uint32_t watch) {
    const int port = operation & 0xff;
    g_machine->submit(port, operation >> 8 & 1, address, data, operation >> 16);
    const uint32_t reason = run_from_python(until, watch);
    if (reason != kDone || g_machine->status[kDoneMask] != uint64_t{1} << port) return reason;
    g_machine->status[kDoneMask] = 0;
    return kTaken;
}

// Forget the end of the operation on a port; its response and data stay in the status words.
void glass_take(int port) { g_machine->status[kDoneMask] &= ~(uint64_t{1} << port); }

void glass_take_run_change() { g_machine->take_run_change(); }

void glass_set_timeout(uint64_t cycles) { g_machine->timeout = cycles; }

// Messages as (vector, cycle) pairs; they are forgotten at `glass_drop_messages`.
const void* glass_messages() { return g_machine->messages.data(); }

void glass_drop_messages() {
    g_machine->messages.clear();
    g_machine->status[kMessages] = 0;
}

void glass_set_tracing(int on) { g_machine->tracing = on; }

// Trace records as (cycle, payload) pairs; they are forgotten at `glass_drop_traces`.
const void* glass_traces() { return g_machine->traces.data(); }

void glass_drop_traces() {
    g_machine->traces.clear();
    g_machine->status[kTraces] = 0;
}

void glass_set_reset(int level) {
    g_top->rst = level;
    if (level) g_machine->reset_ports();
}

// Device time starts anew.
void glass_zero_cycle() { g_machine->status[kCycle] = 0; }

// A benchmark's reference: n cycles of nothing but evaluation.
void glass_bare_run(uint64_t cycles) {
    for (uint64_t i = 0; i < cycles; ++i) {
        g_top->clk = 0;
        g_top->eval_step();
        g_top->clk = 1;
        g_top->eval_step();
    }
}

}  // extern "C"
