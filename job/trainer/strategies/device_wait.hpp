// The host's wait for what it has enqueued on this rank's device, which ends when a rank is lost.
// Training thread.
#pragma once

#include "job/base/result.hpp"
#include "job/collective/communicator.hpp"
#include "job/trainer/cuda_device.hpp"

#include <ATen/ATen.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

class DeviceWait {
  public:
    // When a wait is given up: a rank was lost, or also because this one was told to stop and the
    // others had their time, where it can save what there is without them.
    enum class GiveUp { on_loss, on_loss_or_stop };

    // `all`: of the host, which knows who is lost; must outlive it.
    DeviceWait(Communicator& all, at::Device device, GiveUp when);

    // What is enqueued from now on may wait for other ranks; before this it was this rank's alone.
    void own_work_ends();
    // A piece of work is enqueued that may wait for other ranks. Returns when the device has come
    // past the pieces before the last two: CUDA lets nobody enqueue much more than that, and a host
    // that is stuck there learns of no loss. Errors as of until_done() without `free`.
    Status piece_enqueued();
    // Until the device has come past everything that was enqueued. unavailable: a rank was lost,
    // and nothing waits on the device any more; cancelled: or something still does, and only _Exit
    // ends the process. `free`: ends what waits there, in a thread of its own since that may wait
    // itself for a rank that is gone; null where nothing needs the device afterwards.
    Status until_done(const std::function<void(const std::string& why)>& free);
    // Of the last until_done(): from when this rank's own work was done, in seconds.
    double waited() const { return waited_; }

  private:
    bool gives_up();
    std::string why() const;

    Communicator& all_;
    at::Device device_;
    GiveUp when_;
    std::unique_ptr<cuda_device::Mark> own_work_;
    std::array<std::unique_ptr<cuda_device::Mark>, 2> pieces_;  // ends of the last two
    std::size_t enqueued_ = 0;                                  // since the device was waited for
    bool marked_ = false;
    int lost_polls_ = 0;
    double waited_ = 0.0;
};

// Returns when the device has come past what is enqueued, where none of it waits for other ranks.
void wait_for_own_work(at::Device device);
// Whether the device comes past what is enqueued soon, as it does where nothing of it waits for
// other ranks. On the CPU it has.
bool comes_to_an_end(at::Device device);

}  // namespace lockstep
