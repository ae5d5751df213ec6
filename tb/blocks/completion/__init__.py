"""Block tests of rtl.completion."""
