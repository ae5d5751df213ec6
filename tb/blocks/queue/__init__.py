"""Block tests of rtl.queue."""
