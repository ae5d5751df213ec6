"""Block tests of rtl.host."""
