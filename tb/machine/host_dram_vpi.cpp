// Host memory for Icarus: the bytes behind `host_dram`, in a buffer that Python views.
//
// $glass_dram_open(lines), $glass_dram_read(line, data), $glass_dram_write(line, data, strobe).
// An unknown bit (X) of a line number is an error; of data, it is stored as 0 and counted.

#include <vpi_user.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr uint64_t kLine = 64;  // bytes

uint8_t* g_bytes = nullptr;
uint64_t g_size = 0;
uint64_t g_unknown = 0;

std::vector<vpiHandle> arguments() {
    std::vector<vpiHandle> found;
    vpiHandle call = vpi_handle(vpiSysTfCall, nullptr);
    vpiHandle each = vpi_iterate(vpiArgument, call);
    while (vpiHandle one = each ? vpi_scan(each) : nullptr) found.push_back(one);
    return found;
}

// The words of a value, 32 bits each; unknown bits read as 0 and are counted.
std::vector<uint32_t> words(vpiHandle handle) {
    s_vpi_value value;
    value.format = vpiVectorVal;
    vpi_get_value(handle, &value);
    std::vector<uint32_t> result((vpi_get(vpiSize, handle) + 31) / 32);
    for (size_t i = 0; i < result.size(); ++i) {
        const uint32_t unknown = value.value.vector[i].bval;
        if (unknown) ++g_unknown;
        result[i] = value.value.vector[i].aval & ~unknown;
    }
    return result;
}

uint64_t offset_of(vpiHandle handle) {
    const uint64_t unknown = g_unknown;
    const std::vector<uint32_t> value = words(handle);
    uint64_t line = value[0];
    if (value.size() > 1) line |= uint64_t{value[1]} << 32;
    if (g_unknown != unknown || (line + 1) * kLine > g_size) {
        vpi_printf("host_dram: access to an unknown or absent line\n");
        vpi_control(vpiFinish, 1);
        return 0;
    }
    return line * kLine;
}

PLI_INT32 open_memory(PLI_BYTE8*) {
    const uint64_t size = words(arguments().at(0)).at(0) * kLine;
    if (g_bytes) {
        vpi_printf("host_dram: there can be one host memory only\n");
        vpi_control(vpiFinish, 1);
        return 0;
    }
    g_bytes = static_cast<uint8_t*>(std::calloc(size, 1));
    g_size = size;
    return 0;
}

PLI_INT32 read_line(PLI_BYTE8*) {
    const std::vector<vpiHandle> given = arguments();
    const uint8_t* const from = g_bytes + offset_of(given.at(0));
    s_vpi_vecval line[16];
    for (int i = 0; i < 16; ++i) {
        line[i].bval = 0;
        line[i].aval = static_cast<PLI_INT32>(
            uint32_t{from[4 * i]} | uint32_t{from[4 * i + 1]} << 8
            | uint32_t{from[4 * i + 2]} << 16 | uint32_t{from[4 * i + 3]} << 24);
    }
    s_vpi_value value;
    value.format = vpiVectorVal;
    value.value.vector = line;
    vpi_put_value(given.at(1), &value, nullptr, vpiNoDelay);
    return 0;
}

PLI_INT32 write_line(PLI_BYTE8*) {
    const std::vector<vpiHandle> given = arguments();
    uint8_t* const to = g_bytes + offset_of(given.at(0));
    const std::vector<uint32_t> data = words(given.at(1));
    const std::vector<uint32_t> strobe = words(given.at(2));
    for (uint64_t i = 0; i < kLine; ++i) {
        if (strobe[i / 32] >> (i % 32) & 1) to[i] = data[i / 4] >> (i % 4 * 8) & 0xff;
    }
    return 0;
}

void register_task(const char* name, PLI_INT32 (*routine)(PLI_BYTE8*)) {
    s_vpi_systf_data task{};
    task.type = vpiSysTask;
    task.tfname = const_cast<char*>(name);
    task.calltf = routine;
    vpi_register_systf(&task);
}

void register_tasks() {
    register_task("$glass_dram_open", open_memory);
    register_task("$glass_dram_read", read_line);
    register_task("$glass_dram_write", write_line);
}

}  // namespace

extern "C" {

uint8_t* glass_dram_bytes() { return g_bytes; }
uint64_t glass_dram_size() { return g_size; }
uint64_t glass_dram_unknown() { return g_unknown; }

void (*vlog_startup_routines[])(void) = {register_tasks, nullptr};
}
