// One read port and one masked write port on one clock.
//
// Read: rd_data holds the line of rd_addr one cycle after rd_en, and keeps it until the next rd_en.
// A read and a write of one line on the same edge: the read returns the old line.
// Write: bit i of wr_mask writes bits [i*GRANULE +: GRANULE] of wr_data.

module glass_sram #(
    parameter WIDTH = 512,
    parameter DEPTH = 1024,
    parameter GRANULE = 8,
    parameter ADDR = DEPTH > 1 ? $clog2(DEPTH) : 1,
    parameter LANES = WIDTH / GRANULE
) (
    input                  clk,
    input                  rd_en,
    input      [ADDR-1:0]  rd_addr,
    output reg [WIDTH-1:0] rd_data,
    input                  wr_en,
    input      [ADDR-1:0]  wr_addr,
    input      [WIDTH-1:0] wr_data,
    input      [LANES-1:0] wr_mask
);
    reg [WIDTH-1:0] mem [0:DEPTH-1];

    // Memory powers up as zero, so that Icarus shows X only for signals that nobody drives.
    integer line;
    initial begin
        rd_data = {WIDTH{1'b0}};
        for (line = 0; line < DEPTH; line = line + 1) mem[line] = {WIDTH{1'b0}};
    end

    // A full line is stored whole: the loop over lanes costs ten times as much to simulate.
    integer lane;
    always @(posedge clk) begin
        if (wr_en) begin
            if (&wr_mask) mem[wr_addr] <= wr_data;
            else
                for (lane = 0; lane < LANES; lane = lane + 1)
                    if (wr_mask[lane])
                        mem[wr_addr][lane*GRANULE +: GRANULE] <= wr_data[lane*GRANULE +: GRANULE];
        end
        if (rd_en) rd_data <= mem[rd_addr];
    end
endmodule
