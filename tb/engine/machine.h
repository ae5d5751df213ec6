// The host's side of the machine: bus masters, messages, firmware lines and trace records.
//
// `glass_config.h` says what the top module has: GLASS_PORTS(X) lists the prefixes of its AXI4-Lite
// slaves, GLASS_HAS_MSI, GLASS_HAS_FIRMWARE and GLASS_HAS_TRACE are 1 where the signals exist. What
// is absent compiles to nothing. Verilator spells a double underscore of a port ___05F.
#pragma once

#include <cstdint>
#include <vector>

#include "Vtop.h"
#include "axi_lite.h"

// Why the clock stopped, as bits; `clockwork.Stop` in Python holds the same numbers.
enum Stop : uint32_t {
    kDone = 1,      // a bus operation ended
    kMessage = 2,   // messages wait (only if watched)
    kEvent = 4,     // the firmware's event line is high (only if watched)
    kRun = 8,       // the firmware's run line has changed
    kUntil = 16,    // the cycle asked for is reached
    kCocotb = 32,   // cocotb needs control first
    kFinished = 64,  // the simulation has ended
    kTaken = 128     // glass_transact only: the operation has ended and its result is taken
};

// What Python reads without a call; `native.py` holds the same indices.
enum Status { kCycle, kStop, kDoneMask, kLines, kMessages, kTraces, kPortBase = 8 };

struct Message {
    uint64_t vector, cycle;
};
struct TraceRecord {
    uint64_t cycle, payload;
};

class Machine {
public:
    explicit Machine(Vtop* top) : m_top(top) { s_top = top; }

    uint64_t status[16] = {};
    uint64_t until = 0, timeout = uint64_t{1} << 16;
    uint32_t watch = 0;
    bool tracing = true;
    std::vector<Message> messages;
    std::vector<TraceRecord> traces;

    uint64_t cycle() const { return status[kCycle]; }

    void submit(int port, bool write, uint64_t address, uint64_t data, uint64_t strobe) {
        m_active = true;
        const uint64_t deadline = cycle() + timeout;
#define GLASS_SUBMIT(P) \
    if (port == kPort_##P) m_##P.submit(write, address, data, strobe, deadline);
        GLASS_PORTS(GLASS_SUBMIT)
#undef GLASS_SUBMIT
    }

    void before_edge() {
        if (!m_active) return;
#define GLASS_BEFORE(P) m_##P.before_edge();
        GLASS_PORTS(GLASS_BEFORE)
#undef GLASS_BEFORE
    }

    void after_edge() {
        ++status[kCycle];
        if (m_active) {
            m_active = false;
#define GLASS_AFTER(P)                                       \
    if (m_##P.after_edge(cycle())) {                         \
        status[kDoneMask] |= 1u << kPort_##P;                \
        status[kPortBase + 2 * kPort_##P] = m_##P.response();\
        status[kPortBase + 2 * kPort_##P + 1] = m_##P.data();\
    }                                                        \
    m_active = m_active || m_##P.active();
            GLASS_PORTS(GLASS_AFTER)
#undef GLASS_AFTER
        }
#if GLASS_HAS_FIRMWARE
        const uint64_t lines = uint64_t{m_top->fw_event} | uint64_t{m_top->fw_run} << 1;
        if ((lines ^ status[kLines]) & 2) m_run_changed = true;
        status[kLines] = lines;
#endif
        if (m_top->rst) return;
#if GLASS_HAS_MSI
        if (m_top->msi___05Fvalid) {
            messages.push_back({m_top->msi___05Fvector, cycle()});
            status[kMessages] = messages.size();
        }
#endif
#if GLASS_HAS_TRACE
        if (tracing && m_top->trace___05Fvalid) {
            traces.push_back({cycle(), m_top->trace___05Fpayload});
            status[kTraces] = traces.size();
        }
#endif
    }

    // The reasons to stop that hold now.
    uint32_t stop() {
        uint32_t reason = status[kDoneMask] ? kDone : 0;
        if (cycle() >= until) reason |= kUntil;
        if ((watch & kMessage) && !messages.empty()) reason |= kMessage;
        if ((watch & kEvent) && (status[kLines] & 1)) reason |= kEvent;
        if (m_run_changed) reason |= kRun;
        return reason;
    }

    void take_run_change() { m_run_changed = false; }

    void reset_ports() {
#define GLASS_RESET(P) m_##P.reset();
        GLASS_PORTS(GLASS_RESET)
#undef GLASS_RESET
        m_active = false;
        status[kDoneMask] = 0;
        messages.clear();
        status[kMessages] = 0;
    }

private:
#define GLASS_NUMBER(P) kPort_##P,
    enum { GLASS_PORTS(GLASS_NUMBER) kPortCount };
#undef GLASS_NUMBER
    static_assert(kPortCount <= 4, "the status words hold four ports");

    static inline Vtop* s_top = nullptr;

#define GLASS_PINS(P)                                                \
    struct Pins_##P {                                                \
        static void awaddr(uint64_t v) { s_top->P##___05Fawaddr = v; }   \
        static void wdata(uint64_t v) { s_top->P##___05Fwdata = v; }     \
        static void wstrb(uint64_t v) { s_top->P##___05Fwstrb = v; }     \
        static void araddr(uint64_t v) { s_top->P##___05Faraddr = v; }   \
        static void awvalid(bool v) { s_top->P##___05Fawvalid = v; }     \
        static void wvalid(bool v) { s_top->P##___05Fwvalid = v; }       \
        static void arvalid(bool v) { s_top->P##___05Farvalid = v; }     \
        static void bready(bool v) { s_top->P##___05Fbready = v; }       \
        static void rready(bool v) { s_top->P##___05Frready = v; }       \
        static bool awvalid() { return s_top->P##___05Fawvalid; }        \
        static bool wvalid() { return s_top->P##___05Fwvalid; }          \
        static bool arvalid() { return s_top->P##___05Farvalid; }        \
        static bool bready() { return s_top->P##___05Fbready; }          \
        static bool rready() { return s_top->P##___05Frready; }          \
        static bool awready() { return s_top->P##___05Fawready; }        \
        static bool wready() { return s_top->P##___05Fwready; }          \
        static bool arready() { return s_top->P##___05Farready; }        \
        static bool bvalid() { return s_top->P##___05Fbvalid; }          \
        static bool rvalid() { return s_top->P##___05Frvalid; }          \
        static uint64_t bresp() { return s_top->P##___05Fbresp; }        \
        static uint64_t rresp() { return s_top->P##___05Frresp; }        \
        static uint64_t rdata() { return s_top->P##___05Frdata; }        \
    };                                                               \
    AxiLiteMaster<Pins_##P> m_##P;
    GLASS_PORTS(GLASS_PINS)
#undef GLASS_PINS

    Vtop* const m_top;
    bool m_active = false;
    bool m_run_changed = false;
};
