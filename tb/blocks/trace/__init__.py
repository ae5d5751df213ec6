"""Block tests of rtl.trace."""
