"""The DMA engine: channels that copy and fill, by registers or by descriptor chains."""
