// The part of the double that stands for the CUDA driver (nccl_double.cpp says what it is): host
// memory, and events that are behind the newest operation of their stream.
#include "job/collective/nccl_abi.hpp"
#include "tests/support/nccl_double/state.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

namespace nccl_double {
namespace {

// Each GPU (a context, of the calling thread) has streams of its own, the null stream as well.
thread_local lockstep::cuda::Context current = nullptr;
std::mutex streams_mutex;
std::map<std::pair<lockstep::cuda::Context, void*>, std::shared_ptr<Done>> streams;

}  // namespace

std::vector<long> directive(const std::string& name, long first) {
    const char* all = std::getenv("LOCKSTEP_NCCL_DOUBLE");
    std::istringstream words{all == nullptr ? "" : all};
    for (std::string word; words >> word;) {
        if (!word.starts_with(name) || word.size() <= name.size() ||
            (word[name.size()] != ':' && word[name.size()] != '=')) {
            continue;
        }
        std::vector<long> out;
        std::istringstream numbers{word.substr(name.size() + 1)};
        for (std::string number; std::getline(numbers, number, ':');) {
            out.push_back(std::atol(number.c_str()));
        }
        if (first < 0 || (!out.empty() && out[0] == first)) {
            return out;
        }
    }
    return {};
}

void set_newest(void* stream, std::shared_ptr<Done> operation) {
    const std::lock_guard lock{streams_mutex};
    streams[{current, stream}] = std::move(operation);
}

std::shared_ptr<Done> newest(void* stream) {
    const std::lock_guard lock{streams_mutex};
    return streams[{current, stream}];
}

lockstep::cuda::Context current_context() {
    return current;
}
void set_current_context(lockstep::cuda::Context context) {
    current = context;
}

}  // namespace nccl_double

namespace lockstep::cuda {
struct OpaqueEvent {
    std::shared_ptr<nccl_double::Done> after;
};
}  // namespace lockstep::cuda

namespace cuda = lockstep::cuda;
using nccl_double::directive;
using nccl_double::newest;

DOUBLE cuda::Result cuInit(unsigned /*flags*/) {
    const auto said = directive("driver");
    return said.empty() ? cuda::kSuccess : static_cast<cuda::Result>(said[0]);
}
DOUBLE cuda::Result cuDriverGetVersion(int* version) {
    *version = 13000;
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuGetErrorString(cuda::Result code, const char** text) {
    *text =
        code == cuda::kNoDevice ? "no CUDA-capable device is detected" : "an error of the double";
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuDeviceGetCount(int* count) {
    const auto said = directive("gpus");
    *count = said.empty() ? 8 : static_cast<int>(said[0]);
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuDeviceGet(cuda::Device* device, int index) {
    *device = index;
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuDevicePrimaryCtxRetain(cuda::Context* context, cuda::Device device) {
    *context = reinterpret_cast<cuda::Context>(static_cast<std::uintptr_t>(device) + 1);
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuDevicePrimaryCtxRelease_v2(cuda::Device /*device*/) {
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuCtxGetCurrent(cuda::Context* context) {
    *context = nccl_double::current_context();
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuCtxSetCurrent(cuda::Context context) {
    nccl_double::set_current_context(context);
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuMemAlloc_v2(cuda::Pointer* out, std::size_t size) {
    *out = reinterpret_cast<std::uintptr_t>(std::calloc(size, 1));
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuMemFree_v2(cuda::Pointer pointer) {
    std::free(reinterpret_cast<void*>(pointer));
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuMemcpyHtoD_v2(cuda::Pointer to, const void* from, std::size_t size) {
    std::memcpy(reinterpret_cast<void*>(to), from, size);
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuMemcpyDtoH_v2(void* to, cuda::Pointer from, std::size_t size) {
    std::memcpy(to, reinterpret_cast<const void*>(from), size);
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuEventCreate(cuda::Event* event, unsigned /*flags*/) {
    *event = new cuda::OpaqueEvent;
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuEventDestroy_v2(cuda::Event event) {
    delete event;
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuEventRecord(cuda::Event event, void* stream) {
    event->after = newest(stream);
    return cuda::kSuccess;
}
DOUBLE cuda::Result cuEventQuery(cuda::Event event) {
    return event->after == nullptr || event->after->done ? cuda::kSuccess : cuda::kNotReady;
}
DOUBLE cuda::Result cuStreamIsCapturing(void* /*stream*/, int* status) {
    *status = 0;
    return cuda::kSuccess;
}
