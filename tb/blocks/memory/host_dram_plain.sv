// The ports of host_dram around glass_sram: for block tests on Icarus, which load no VPI module.

module host_dram #(
    parameter LINES = 1024,
    parameter ADDR = LINES > 1 ? $clog2(LINES) : 1
) (
    input             clk,
    input             rd_en,
    input  [ADDR-1:0] rd_line,
    output [511:0]    rd_data,
    input             wr_en,
    input  [ADDR-1:0] wr_line,
    input  [511:0]    wr_data,
    input  [63:0]     wr_strb
);
    glass_sram #(.WIDTH(512), .DEPTH(LINES), .GRANULE(8)) array (
        .clk(clk), .rd_en(rd_en), .rd_addr(rd_line), .rd_data(rd_data),
        .wr_en(wr_en), .wr_addr(wr_line), .wr_data(wr_data), .wr_mask(wr_strb)
    );
endmodule
