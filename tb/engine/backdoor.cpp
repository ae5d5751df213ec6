// Lets Python find public signals and memories of a running model; works with any main.
#include <cstdint>
#include <string>

#include "verilated.h"
#include "verilated_syms.h"

// The address of a public signal or memory: `scope` as `top.dram`; sizes in bytes; null if absent.
extern "C" void* glass_memory(const char* scope, const char* name, uint64_t* entry, uint64_t* total) {
    const std::string full = std::string{"TOP."} + scope;
    for (const std::string& candidate : {std::string{scope}, full}) {
        const VerilatedScope* const found = Verilated::scopeFind(candidate.c_str());
        if (!found) continue;
        if (VerilatedVar* const variable = found->varFind(name)) {
            *entry = variable->entSize();
            *total = variable->totalSize();
            return variable->datap();
        }
    }
    return nullptr;
}

// Every public scope and its variables, one a line, for the message when a name is not found.
extern "C" const char* glass_scopes() {
    static std::string text;
    text.clear();
    if (const VerilatedScopeNameMap* const scopes = Verilated::threadContextp()->scopeNameMap()) {
        for (const auto& scope : *scopes) {
            text += std::string{scope.first} + ":";
            if (const VerilatedVarNameMap* const variables = scope.second->varsp()) {
                for (const auto& variable : *variables) text += std::string{" "} + variable.first;
            }
            text += "\n";
        }
    }
    return text.c_str();
}
