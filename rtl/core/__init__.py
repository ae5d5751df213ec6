"""The AI core: a command sequencer, four pipes and the buffers between them."""
