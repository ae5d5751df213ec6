"""Operations on device arrays, by kernels of the library."""
