"""IEEE 754 binary32 arithmetic: fused multiply-add, conversions, comparisons."""
