// cuda_device.hpp for a LibTorch without CUDA: choose_device() never gets past built().
#include "job/base/check.hpp"
#include "job/trainer/cuda_device.hpp"

namespace lockstep::cuda_device {

struct SideStream::State {};
struct Mark::State {};
// A stand-in, for tests on the CPU: computes at every launch.
struct Graph::State {
    std::function<void()> work;
};

bool built() {
    return false;
}
int visible() {
    return 0;
}
std::string none_because() {
    return "this LibTorch has no CUDA";
}
std::string describe(int /*gpu*/) {
    return "";
}
void use(int /*gpu*/) {
    LOCKSTEP_CHECK(false);
}
Stream current_stream() {
    return nullptr;
}
bool finished(const std::function<bool()>& /*give_up*/) {
    return true;
}
std::int64_t free_bytes() {
    return 0;
}
void empty_cache() {}

Mark::Mark() = default;
Mark::~Mark() = default;
void Mark::set() {}
bool Mark::wait(const std::function<bool()>& /*give_up*/) {
    return true;
}

SideStream::SideStream() = default;
SideStream::~SideStream() = default;
Stream SideStream::handle() const {
    return nullptr;
}
void SideStream::wait_for_current() {}
void SideStream::current_waits() {}
void SideStream::run(const std::function<void()>& work) {
    work();
}
void SideStream::current_uses(const at::Tensor& /*made*/) {}

Graph::Graph(const std::function<void()>& work) : state_(std::make_unique<State>(State{work})) {}
Graph::~Graph() = default;
void Graph::launch() {
    state_->work();
}

}  // namespace lockstep::cuda_device
