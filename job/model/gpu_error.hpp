// Errors that are a GPU's own, by the number under which NVIDIA's driver reports them (Xid,
// https://docs.nvidia.com/deploy/xid-errors), and those that are a program's doing. What is in
// neither list is contained to the program that met it (94), a repair (63), or not certain to be
// either. The pre-flight, the causes of failures and the notes on nodes go by these. Pure; any
// thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

struct GpuError {
    std::int64_t xid;
    std::string_view words;  // what the number means
    // The GPU is of no use until it is reset: the pre-flight fails its node for an hour.
    bool unusable;
    // Nothing that uses it goes on, whether it fails or waits for ever.
    bool gone;
};

inline constexpr std::array kGpuErrors{
    GpuError{48, "an uncorrectable error of its memory", false, false},
    GpuError{64, "a faulty row of its memory could not be remapped", true, false},
    GpuError{74, "an error of its NVLink", false, false},
    GpuError{79, "it has fallen off the bus", true, true},
    GpuError{95, "an error of its memory that was not contained", true, false},
};

// A graphics exception, a page fault, a channel that was stopped, preemptive cleanup, a video
// processor's exception, a context switch that took too long.
inline constexpr std::array<std::int64_t, 6> kXidsOfPrograms{13, 31, 43, 45, 68, 109};

constexpr bool is_xid_of_program(std::int64_t xid) {
    return std::find(kXidsOfPrograms.begin(), kXidsOfPrograms.end(), xid) != kXidsOfPrograms.end();
}

// nullptr: not the GPU's own, as far as the number tells.
constexpr const GpuError* find_gpu_error(std::int64_t xid) {
    const auto* const found = std::find_if(kGpuErrors.begin(), kGpuErrors.end(),
                                           [xid](const GpuError& one) { return one.xid == xid; });
    return found == kGpuErrors.end() ? nullptr : &*found;
}

}  // namespace lockstep
