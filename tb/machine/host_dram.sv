// Host memory: lines of 64 bytes, one read and one byte-masked write a cycle.
//
// Read: rd_data holds the line from the cycle after rd_en until the next rd_en. A read and a write
// of one line on the same edge: the read returns the old line.
// Python views the bytes without a copy: on Verilator through the address of `mem`, on Icarus the
// bytes live in a VPI module (host_dram_vpi.cpp), since Icarus gives no address of an array.

module host_dram #(
    parameter LINES = 1024,
    parameter ADDR = LINES > 1 ? $clog2(LINES) : 1
) (
    input                 clk,
    input                 rd_en,
    input      [ADDR-1:0] rd_line,
    output reg [511:0]    rd_data,
    input                 wr_en,
    input      [ADDR-1:0] wr_line,
    input      [511:0]    wr_data,
    input      [63:0]     wr_strb
);
    initial rd_data = 512'b0;

`ifdef __ICARUS__
    reg [511:0] line;
    initial $glass_dram_open(LINES);

    always @(posedge clk) begin
        if (rd_en) begin
            $glass_dram_read(rd_line, line);
            rd_data <= line;
        end
        if (wr_en) $glass_dram_write(wr_line, wr_data, wr_strb);
    end
`else
    reg [511:0] mem [0:LINES-1];

    // A full line is stored whole: the loop over bytes costs ten times as much to simulate.
    integer lane;
    always @(posedge clk) begin
        if (wr_en) begin
            if (&wr_strb) mem[wr_line] <= wr_data;
            else
                for (lane = 0; lane < 64; lane = lane + 1)
                    if (wr_strb[lane]) mem[wr_line][lane*8 +: 8] <= wr_data[lane*8 +: 8];
        end
        if (rd_en) rd_data <= mem[rd_line];
    end
`endif
endmodule
