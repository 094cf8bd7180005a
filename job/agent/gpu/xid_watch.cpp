#include "job/agent/gpu/xid_watch.hpp"

#include "job/async/quiet_thread.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>

namespace lockstep {
namespace {
constexpr unsigned int kWaitMs = 100;
}

XidWatch::XidWatch(const Nvml& nvml, std::vector<std::pair<nvml::Device, std::uint32_t>> gpus,
                   std::function<void(std::uint32_t, std::uint32_t)> seen)
    : nvml_(nvml), gpus_(std::move(gpus)), seen_(std::move(seen)) {
    const nvml::Api& api = nvml.api();
    if (api.events_create == nullptr || api.events_free == nullptr ||
        api.events_register == nullptr || api.events_wait == nullptr ||
        api.events_create(&set_) != nvml::kSuccess) {
        set_ = nullptr;
        return;
    }
    const auto refused = [&](const auto& gpu) {
        return api.events_register(gpu.first, nvml::kEventXid, set_) != nvml::kSuccess;
    };
    gpus_.erase(std::remove_if(gpus_.begin(), gpus_.end(), refused), gpus_.end());
    if (!gpus_.empty()) {
        try {
            thread_ = quiet_thread([this] { run(); });
        } catch (const std::system_error& error) {
            log::warn("no thread for Xid events", {{"why", error.what()}});
        }
    }
}

XidWatch::~XidWatch() {
    stop_ = true;
    if (thread_.joinable()) {
        thread_.join();
    }
    if (set_ != nullptr) {
        nvml_.api().events_free(set_);
    }
}

void XidWatch::run() {
    while (!stop_) {
        nvml::EventData event{};
        const auto code = nvml_.api().events_wait(set_, &event, kWaitMs);
        if (code == nvml::kSuccess) {
            const auto gpu = std::find_if(gpus_.begin(), gpus_.end(), [&event](const auto& one) {
                return one.first == event.device;
            });
            if ((event.type & nvml::kEventXid) != 0 && gpu != gpus_.end()) {
                seen_(gpu->second, static_cast<std::uint32_t>(event.data));
            }
        } else if (code != nvml::kErrorTimeout) {
            // A lost GPU makes the wait return at once, for ever: the others are still there.
            std::this_thread::sleep_for(std::chrono::milliseconds{kWaitMs});
        }
    }
}

}  // namespace lockstep
