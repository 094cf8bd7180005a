// NVIDIA's management library, opened at run time: one agent serves nodes with and without GPUs.
// Owns the initialisation of the library. NVML is thread-safe, and so is this.
#pragma once

#include "job/agent/gpu/nvml_abi.hpp"
#include "job/base/result.hpp"

#include <memory>
#include <string>

namespace lockstep {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

class Nvml {
  public:
    // Loads and initialises the library: milliseconds to seconds, so not on the agent's own thread.
    // not_found: there is no such library, or no driver; invalid: it is not NVML.
    static Result<std::unique_ptr<Nvml>> open(const char* library = kNvmlLibrary);
    ~Nvml();
    Nvml(const Nvml&) = delete;
    Nvml& operator=(const Nvml&) = delete;

    // Symbols of newer drivers are null with an older one.
    const nvml::Api& api() const { return api_; }
    std::string error(nvml::Return code) const;

  private:
    Nvml() = default;
    nvml::Api api_;
};

}  // namespace lockstep
