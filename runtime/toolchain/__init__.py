"""Programs of the scalar unit: assembler, disassembler, object files, interpreter, hazards."""
