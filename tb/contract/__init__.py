"""Pages of the docs that are generated: the contract and the runtime's API."""
