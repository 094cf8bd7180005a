#include "job/trainer/cuda_device.hpp"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>
#include <exception>
#include <thread>

namespace lockstep::cuda_device {
namespace {

constexpr auto kGiveUpPoll = std::chrono::milliseconds{100};
constexpr std::uint64_t kMiB = 1U << 20U;
constexpr double kGiB = 1024.0;

// Of the GPU that the thread which made it uses. (LibTorch's own needs headers of cuBLAS and more.)
class Event {
  public:
    Event() { C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
    ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    void record(cudaStream_t stream) { C10_CUDA_CHECK(cudaEventRecord(event_, stream)); }
    void block(cudaStream_t stream) { C10_CUDA_CHECK(cudaStreamWaitEvent(stream, event_, 0)); }
    bool done() {
        const cudaError_t state = cudaEventQuery(event_);
        if (state != cudaErrorNotReady) {
            C10_CUDA_CHECK(state);
            return true;
        }
        static_cast<void>(cudaGetLastError());  // "not ready" is none to keep
        return false;
    }

  private:
    cudaEvent_t event_ = nullptr;
};

cudaStream_t this_stream() {
    return c10::cuda::getCurrentCUDAStream().stream();
}

// Polls, as cudaStreamSynchronize does by itself: a step of a small network takes microseconds.
bool wait_for(Event& event, const std::function<bool()>& give_up) {
    auto next = std::chrono::steady_clock::now() + kGiveUpPoll;
    while (!event.done()) {
        if (const auto now = std::chrono::steady_clock::now(); now >= next) {
            if (give_up()) {
                return false;
            }
            next = now + kGiveUpPoll;
        }
        std::this_thread::yield();
    }
    return true;
}

}  // namespace

struct Mark::State {
    Event event;
};
struct SideStream::State {
    c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/true);
    Event here;
    Event there;
};
struct Graph::State {
    at::cuda::CUDAGraph graph;
};

bool built() {
    return true;
}

int visible() {
    return c10::cuda::device_count();
}

std::string none_because() {
    try {
        static_cast<void>(c10::cuda::device_count_ensure_non_zero());
    } catch (const std::exception& error) {
        const std::string text = error.what();
        return text.substr(0, text.find('\n'));
    }
    return "CUDA finds none";
}

std::string describe(int gpu) {
    cudaDeviceProp about{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&about, gpu));
    std::array<char, 160> text{};
    std::snprintf(text.data(), text.size(), "%.100s, %.0f GiB",
                  static_cast<const char*>(about.name),
                  static_cast<double>(about.totalGlobalMem / kMiB) / kGiB);
    return text.data();
}

// The default stream cannot be captured.
void use(int gpu) {
    const auto index = static_cast<c10::DeviceIndex>(gpu);
    c10::cuda::set_device(index);
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index));
}

Stream current_stream() {
    return this_stream();
}

bool finished(const std::function<bool()>& give_up) {
    static thread_local Event event;  // a thread has one GPU
    event.record(this_stream());
    return wait_for(event, give_up);
}

std::int64_t free_bytes() {
    std::size_t free = 0;
    std::size_t all = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &all));
    return static_cast<std::int64_t>(free);
}

void empty_cache() {
    c10::cuda::CUDACachingAllocator::emptyCache();
}

Mark::Mark() : state_(std::make_unique<State>()) {}
Mark::~Mark() = default;

void Mark::set() {
    state_->event.record(this_stream());
}

bool Mark::wait(const std::function<bool()>& give_up) {
    return wait_for(state_->event, give_up);
}

SideStream::SideStream() : state_(std::make_unique<State>()) {}
SideStream::~SideStream() = default;

Stream SideStream::handle() const {
    return state_->stream.stream();
}

void SideStream::wait_for_current() {
    state_->here.record(this_stream());
    state_->here.block(state_->stream.stream());
}

void SideStream::current_waits() {
    state_->there.record(state_->stream.stream());
    state_->there.block(this_stream());
}

void SideStream::run(const std::function<void()>& work) {
    const c10::cuda::CUDAStreamGuard here{state_->stream};
    work();
}

void SideStream::current_uses(const at::Tensor& made) {
    made.record_stream(c10::cuda::getCurrentCUDAStream().unwrap());
}

// Of this thread only: a communicator's watch asks for its events meanwhile.
Graph::Graph(const std::function<void()>& work) : state_(std::make_unique<State>()) {
    const auto pool = at::cuda::graph_pool_handle();
    state_->graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    std::exception_ptr thrown;
    try {
        work();
    } catch (...) {
        thrown = std::current_exception();
    }
    try {
        state_->graph.capture_end();
    } catch (const std::exception&) {
        // It leaves its allocator behind where CUDA ends the capture with an error.
        const c10::DeviceIndex device = c10::cuda::current_device();
        c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool);
        c10::cuda::CUDACachingAllocator::releasePool(device, pool);
        if (!thrown) {
            thrown = std::current_exception();
        }
    }
    if (thrown) {
        std::rethrow_exception(thrown);
    }
}
Graph::~Graph() = default;

void Graph::launch() {
    state_->graph.replay();
}

}  // namespace lockstep::cuda_device
