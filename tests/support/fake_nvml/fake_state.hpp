// What the GPUs of the stand-in for libnvidia-ml.so.1 do, read from the text file that FAKE_NVML
// names: a test changes it while the agent runs.
//   gpus 8                     how many there are (default 8)
//   gpu G utilization 50       percent; also: memory USED TOTAL (bytes), temperature C,
//                              clock SM MEM (MHz), minor N, gpm ID PERCENT, process PID BYTES,
//                              field ID int|long VALUE, nofield ID (not supported), nogpm, lost,
//                              ecc N (uncorrected), remap PENDING FAILED, pages PENDING (then rows
//                              are not remapped), reasons BITS (of clocks, from 0x), links N (all
//                              active), link N down, linkerrors N CRC REPLAYS RECOVERIES,
//                              no ecc|remap|pages|reasons|processes|mig (not supported), hidden,
//                              mig (divided into slices: its utilization is not told),
//                              fallen (lost before anybody looked: it has not even a handle)
//   driver 535.54              its version (default 570.1.fake)
//   hang                       calls do not return while this is there; <FAKE_NVML>.hangs exists
//   then xid G NUMBER               one error; lines that are added later are errors that happen
//   later
// G is a number or * (every GPU). A later line wins. Every GPU has the values of defaults() first.
#pragma once

#include "job/agent/gpu/nvml_abi.hpp"

#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fake_nvml {

constexpr std::size_t kMost = 64;

struct Number {
    bool wide = true;
    unsigned long long value = 0;
};

struct Link {
    bool up = true;
    std::array<unsigned long long, 4> errors{};  // by nvmlNvLinkErrorCounter_t
};

struct Gpu {
    unsigned long long ecc = 0;
    std::array<unsigned int, 2> remap{};  // pending, failed
    int pages = 0;
    unsigned long long reasons = 1;  // idle
    std::vector<Link> links;
    std::set<std::string> no{"pages"};  // as those that remap rows
    bool hidden = false;                // from this user
    unsigned int utilization = 0;
    unsigned long long memory_used = 1ULL << 30U;
    unsigned long long memory_total = 80ULL << 30U;
    unsigned int temperature = 40;
    unsigned int clock_sm = 1980;
    unsigned int clock_memory = 2619;
    unsigned int minor = 0;
    bool lost = false;
    bool fallen = false;
    bool mig = false;
    bool gpm = true;
    std::map<unsigned int, double> gpm_values{{2, 10}, {3, 11}, {5, 12}, {10, 13}};
    std::map<unsigned int, Number> fields;
    std::vector<std::pair<unsigned int, unsigned long long>> processes;
};

struct State {
    std::size_t gpus = 8;
    bool hangs = false;
    std::string driver = "570.1.fake";
    std::array<Gpu, kMost> gpu;
    std::vector<std::pair<unsigned int, unsigned int>> xids;
};

// As the file is now.
State read_state();

}  // namespace fake_nvml
