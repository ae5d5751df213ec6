"""The contract page, generated from `abi`."""
