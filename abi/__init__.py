"""The contract between host, firmware and hardware. Each shared number is declared here, once.

`abi` imports nothing else of this project.
"""
