#include "tests/support/fake_nvml/fake_state.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace fake_nvml {
namespace {

using namespace lockstep::nvml;

void defaults(State& state) {
    for (std::size_t i = 0; i < kMost; ++i) {
        Gpu& gpu = state.gpu[i];
        gpu.minor = static_cast<unsigned int>(i);
        for (const unsigned int id : {3U, 4U, 59U, 94U, 142U, 143U, 144U, 145U, 160U, 230U}) {
            gpu.fields[id] = {false, 0};
        }
        for (const unsigned int id : {74U, 76U, 251U, 252U, 253U, 83U, 138U, 139U}) {
            gpu.fields[id] = {true, 0};
        }
        gpu.fields[82] = {false, 45};
        gpu.fields[186] = {false, 100'000};
        gpu.fields[190] = {false, 700'000};
        gpu.fields[197] = {false, 0};
        gpu.fields[198] = {false, 0};
    }
}

// Of those that say how fit the GPU is. False: it is none of them.
bool set_health(Gpu& gpu, const std::string& what, std::istringstream& in) {
    std::size_t number = 0;
    std::string word;
    if (what == "ecc") {
        in >> gpu.ecc;
    } else if (what == "remap") {
        in >> gpu.remap[0] >> gpu.remap[1];
    } else if (what == "pages") {
        in >> gpu.pages;
        gpu.no = {"remap"};
    } else if (what == "reasons") {
        in >> std::hex >> gpu.reasons;
    } else if (what == "links") {
        in >> number;
        gpu.links.assign(number, {});
    } else if (what == "link") {
        in >> number >> word;
        gpu.links.at(number).up = word != "down";
    } else if (what == "linkerrors") {
        in >> number;
        auto& errors = gpu.links.at(number).errors;
        in >> errors[kLinkCrcFlit] >> errors[kLinkReplays] >> errors[kLinkRecoveries];
    } else if (what == "no") {
        in >> word;
        gpu.no.insert(word);
    } else if (what == "mig") {
        gpu.mig = true;
    } else if (what == "hidden") {
        gpu.hidden = true;
    } else if (what == "fallen") {
        gpu.fallen = true;
    } else {
        return false;
    }
    return true;
}

void set(Gpu& gpu, const std::string& what, std::istringstream& in) {
    unsigned int id = 0;
    if (set_health(gpu, what, in)) {
        return;
    }
    if (what == "utilization") {
        in >> gpu.utilization;
    } else if (what == "memory") {
        in >> gpu.memory_used >> gpu.memory_total;
    } else if (what == "temperature") {
        in >> gpu.temperature;
    } else if (what == "clock") {
        in >> gpu.clock_sm >> gpu.clock_memory;
    } else if (what == "minor") {
        in >> gpu.minor;
    } else if (what == "gpm") {
        in >> id;
        in >> gpu.gpm_values[id];
    } else if (what == "nogpm") {
        gpu.gpm = false;
    } else if (what == "lost") {
        gpu.lost = true;
    } else if (what == "process") {
        unsigned long long bytes = 0;
        in >> id >> bytes;
        gpu.processes.emplace_back(id, bytes);
    } else if (what == "field") {
        std::string kind;
        Number number;
        in >> id >> kind >> number.value;
        number.wide = kind == "long";
        gpu.fields[id] = number;
    } else if (what == "nofield") {
        in >> id;
        gpu.fields.erase(id);
    } else {
        std::fprintf(stderr, "fake NVML: no such word: %s\n", what.c_str());
        std::abort();
    }
}

}  // namespace

State read_state() {
    State state;
    defaults(state);
    const char* path = std::getenv("FAKE_NVML");
    std::ifstream file{path != nullptr ? path : ""};
    for (std::string line; std::getline(file, line);) {
        std::istringstream in{line};
        std::string word;
        in >> word;
        if (word == "gpus") {
            in >> state.gpus;
            state.gpus = std::min(state.gpus, kMost);
        } else if (word == "driver") {
            in >> state.driver;
        } else if (word == "hang") {
            state.hangs = true;
        } else if (word == "xid") {
            std::pair<unsigned int, unsigned int> xid;
            in >> xid.first >> xid.second;
            state.xids.push_back(xid);
        } else if (word == "gpu") {
            std::string which;
            std::string what;
            in >> which >> what;
            const std::string rest{std::istreambuf_iterator<char>{in}, {}};
            for (std::size_t i = 0; i < kMost; ++i) {
                if (which == "*" || which == std::to_string(i)) {
                    std::istringstream values{rest};
                    set(state.gpu[i], what, values);
                }
            }
        }
    }
    return state;
}

}  // namespace fake_nvml
