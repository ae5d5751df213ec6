"""The vector unit: element-wise operations, reductions, packing and data movement in UB."""
