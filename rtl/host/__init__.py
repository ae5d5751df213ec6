"""The host interface: AXI4-Lite front ends, register banks, mailbox, interrupts, reset."""
