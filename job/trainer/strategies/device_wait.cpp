#include "job/trainer/strategies/device_wait.hpp"

#include "job/trainer/strategy.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <chrono>
#include <optional>
#include <thread>

namespace lockstep {
namespace {

using WaitClock = std::chrono::steady_clock;

// Polls, 100 ms apart, that find a connection ended before it is a loss: a rank that was told to
// stop may be done a moment before this one.
constexpr int kLostPolls = 3;

}  // namespace

void wait_for_own_work(at::Device device) {
    if (device.is_cuda()) {
        static_cast<void>(cuda_device::finished([] { return false; }));
    }
}

bool comes_to_an_end(at::Device device) {
    return device.is_cpu() ||
           cuda_device::finished([until = WaitClock::now() + limits::kGpuEndPatience] {
               return WaitClock::now() > until;
           });
}

DeviceWait::DeviceWait(Communicator& all, at::Device device, GiveUp when)
    : all_(all), device_(device), when_(when) {
    if (device_.is_cuda()) {
        own_work_ = std::make_unique<cuda_device::Mark>();
        for (auto& piece : pieces_) {
            piece = std::make_unique<cuda_device::Mark>();
        }
    }
}

void DeviceWait::own_work_ends() {
    if (own_work_ != nullptr) {
        own_work_->set();
        marked_ = true;
    }
}

// One rank alone waits for nobody but itself.
bool DeviceWait::gives_up() {
    if (all_.size() == 1) {
        return false;
    }
    lost_polls_ = all_.lost_peer() ? lost_polls_ + 1 : 0;
    return lost_polls_ >= kLostPolls || (when_ == GiveUp::on_loss_or_stop && stop_is_overdue());
}

std::string DeviceWait::why() const {
    const std::optional<std::int32_t> lost = all_.lost_peer();
    return lost ? "its peer rank " + std::to_string(*lost) + " was lost"
                : "the other ranks did not finish the step";
}

Status DeviceWait::piece_enqueued() {
    if (!device_.is_cuda()) {
        return {};
    }
    cuda_device::Mark& mark = *pieces_[enqueued_ % pieces_.size()];
    lost_polls_ = 0;
    if (enqueued_ >= pieces_.size() && !mark.wait([this] { return gives_up(); })) {
        return fail(Errc::cancelled, why());
    }
    mark.set();
    ++enqueued_;
    return {};
}

Status DeviceWait::until_done(const std::function<void(const std::string& why)>& free) {
    waited_ = 0.0;
    lost_polls_ = 0;
    enqueued_ = 0;
    if (!device_.is_cuda()) {
        return {};
    }
    const auto give_up = [this] { return gives_up(); };
    bool done = !marked_ || own_work_->wait(give_up);
    marked_ = false;
    const auto own = WaitClock::now();
    done = done && cuda_device::finished(give_up);
    if (all_.size() > 1) {
        waited_ = std::chrono::duration<double>(WaitClock::now() - own).count();
    }
    if (done) {
        return {};
    }
    const std::string words = why();
    if (free) {
        std::thread{[free, words] { free(words); }}.detach();
        if (comes_to_an_end(device_)) {
            return fail(Errc::unavailable, words);
        }
    }
    return fail(Errc::cancelled, words);
}

}  // namespace lockstep
