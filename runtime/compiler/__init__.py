"""The kernel compiler: tiles, loops and operations written in Python become a kernel object."""
