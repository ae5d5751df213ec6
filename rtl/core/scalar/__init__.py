"""The scalar unit of the AI core: RV32IM, and what issues commands to the pipes."""
