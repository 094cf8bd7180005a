// NCCL and the CUDA driver, loaded at run time and kept until the process ends (neither likes to be
// unloaded). Any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/collective/nccl_abi.hpp"

#include <string>

namespace lockstep {

inline constexpr const char* kNcclLibrary = "libnccl.so.2";
inline constexpr const char* kCudaDriver = "libcuda.so.1";

struct NcclLibrary {
    nccl::Api api;
    int version = 0;  // major * 10000 + minor * 100 + patch

    std::string version_text() const;
    // "unhandled cuda error", and what NCCL itself says of it.
    std::string error(nccl::Result code, nccl::Comm comm) const;
};
// A copy that is loaded already goes before the one at `path`, if that is the mere name: two in one
// process share neither communicators nor RAS. not_found: it does not load, with the loader's
// reason; invalid: it is not NCCL, or older than nccl::kOldest.
Result<NcclLibrary> load_nccl(const std::string& path = kNcclLibrary);

struct CudaDriver {
    cuda::Api api;
    int version = 0;  // of CUDA that the driver knows: major * 1000 + minor * 10

    std::string error(cuda::Result code) const;
};
// not_found: no driver, or no GPU; invalid: it is not the driver.
Result<CudaDriver> load_cuda(const std::string& path = kCudaDriver);

}  // namespace lockstep
