// Errors that are a GPU's own, by the number under which NVIDIA's driver reports them (Xid,
// https://docs.nvidia.com/deploy/xid-errors). What is missing here is a program's doing (13, 31,
// 43, 45), contained to the program that met it (94), a repair (63), or not certain to be either.
// The pre-flight and the causes of failures go by this one list. Pure; any thread.
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

// nullptr: not the GPU's own, as far as the number tells.
constexpr const GpuError* find_gpu_error(std::int64_t xid) {
    const auto* const found = std::find_if(kGpuErrors.begin(), kGpuErrors.end(),
                                           [xid](const GpuError& one) { return one.xid == xid; });
    return found == kGpuErrors.end() ? nullptr : &*found;
}

}  // namespace lockstep
