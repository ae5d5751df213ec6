// An AXI4-Lite master for one port of the top module, at most one operation in flight.
//
// Cycles: an operation submitted after rising edge c drives valid from there, so the earliest
// handshake is at edge c+1. awvalid and wvalid rise together and fall each after its own handshake.
// bready (rready) is 1 while a write (read) is in flight. The response is taken at the edge where
// valid and ready are 1, and is visible after that edge. An operation without a response after
// `timeout` cycles ends without one; its valids fall, and an answer that comes later is dropped.
#pragma once

#include <cstdint>

enum : uint64_t { kNoResponse = ~uint64_t{0} };

template <class Pins>
class AxiLiteMaster {
public:
    bool busy() const { return m_busy; }
    // Work to do at an edge: an operation, or the late answer of one that timed out.
    bool active() const { return m_busy || m_late_b || m_late_r; }
    uint64_t response() const { return m_response; }
    uint64_t data() const { return m_data; }

    void submit(bool write, uint64_t address, uint64_t data, uint64_t strobe, uint64_t deadline) {
        m_busy = true;
        m_write = write;
        m_deadline = deadline;
        if (write) {
            Pins::awaddr(address);
            Pins::wdata(data);
            Pins::wstrb(strobe);
            Pins::awvalid(1);
            Pins::wvalid(1);
            Pins::bready(1);
        } else {
            Pins::araddr(address);
            Pins::arvalid(1);
            Pins::rready(1);
        }
    }

    // Just before the rising edge: which handshakes will happen, and what they carry.
    void before_edge() {
        m_took_aw = Pins::awvalid() && Pins::awready();
        m_took_w = Pins::wvalid() && Pins::wready();
        m_took_ar = Pins::arvalid() && Pins::arready();
        m_took_b = Pins::bready() && Pins::bvalid();
        m_took_r = Pins::rready() && Pins::rvalid();
        if (m_took_b) m_seen_response = Pins::bresp();
        if (m_took_r) {
            m_seen_response = Pins::rresp();
            m_seen_data = Pins::rdata();
        }
    }

    // After the rising edge `cycle` has settled; true if the operation ended at it.
    bool after_edge(uint64_t cycle) {
        if (m_took_aw) Pins::awvalid(0);
        if (m_took_w) Pins::wvalid(0);
        if (m_took_ar) Pins::arvalid(0);
        bool ended = false;
        if (m_took_b) {
            if (m_late_b) --m_late_b;
            else ended = m_write && m_busy;
        }
        if (m_took_r) {
            if (m_late_r) --m_late_r;
            else ended = ended || (!m_write && m_busy);
        }
        if (ended) {
            m_response = m_seen_response;
            m_data = m_write ? 0 : m_seen_data;
        } else if (m_busy && cycle >= m_deadline) {
            give_up();
            ended = true;
        }
        if (ended) m_busy = false;
        if (ended || m_took_b || m_took_r) {
            Pins::bready((m_busy && m_write) || m_late_b);
            Pins::rready((m_busy && !m_write) || m_late_r);
        }
        return ended;
    }

    void reset() {
        m_busy = false;
        m_late_b = m_late_r = 0;
        Pins::awvalid(0);
        Pins::wvalid(0);
        Pins::arvalid(0);
        Pins::bready(0);
        Pins::rready(0);
    }

private:
    void give_up() {
        if (m_write && !Pins::awvalid() && !Pins::wvalid()) ++m_late_b;
        if (!m_write && !Pins::arvalid()) ++m_late_r;
        Pins::awvalid(0);
        Pins::wvalid(0);
        Pins::arvalid(0);
        m_response = kNoResponse;
        m_data = 0;
    }

    bool m_busy = false;
    bool m_write = false;
    bool m_took_aw = false, m_took_w = false, m_took_ar = false;
    bool m_took_b = false, m_took_r = false;
    uint32_t m_late_b = 0, m_late_r = 0;
    uint64_t m_deadline = 0;
    uint64_t m_seen_response = 0, m_seen_data = 0;
    uint64_t m_response = 0, m_data = 0;
};
