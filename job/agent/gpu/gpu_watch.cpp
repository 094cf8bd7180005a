#include "job/agent/gpu/gpu_watch.hpp"

#include "job/agent/gpu/gpu_sampler.hpp"
#include "job/agent/gpu/quiet_thread.hpp"
#include "job/agent/gpu/rank_processes.hpp"
#include "job/agent/gpu/xid_watch.hpp"
#include "job/base/clock.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr double kXidAgainSeconds = 60;

double seconds_now() {
    return static_cast<double>(SystemClock{}.wall()) / 1000.0;
}

}  // namespace

GpuWatch::GpuWatch(Handlers handlers, std::chrono::milliseconds interval, const char* library)
    : handlers_(std::move(handlers)), interval_(interval), library_(library) {
    thread_ = quiet_thread([this] { run(); });
}

GpuWatch::~GpuWatch() {
    {
        const std::lock_guard lock{mutex_};
        stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
}

void GpuWatch::set_ranks(std::map<std::int64_t, std::uint32_t> pids) {
    const std::lock_guard lock{mutex_};
    pids_ = std::move(pids);
}

void GpuWatch::run() {
    const auto nvml = Nvml::open(library_);
    if (!nvml) {
        log::info("no GPU metrics", {{"why", nvml.error().message}});
        return;
    }
    watch(**nvml);
}

void GpuWatch::watch(const Nvml& nvml) {
    GpuSampler sampler{nvml};
    if (sampler.gpus() == 0) {
        log::info("no GPU metrics", {{"why", "the driver shows no GPU"}});
        return;
    }
    log::info("GPUs are watched", {{"gpus", sampler.gpus()}});
    const XidWatch xids{nvml, sampler.handles(),
                        [this](std::uint32_t gpu, std::uint32_t xid) { on_xid(gpu, xid); }};
    std::unique_lock lock{mutex_};
    auto next = std::chrono::steady_clock::now();
    while (!stop_) {
        const RankProcesses processes{pids_};
        lock.unlock();
        GpuBatch batch = sampler.sample(seconds_now(), processes);
        lock.lock();
        remember(batch);
        for (const auto& [key, times] : xids_) {
            batch.xids.push_back({key.first, key.second, times.first});
        }
        lock.unlock();
        handlers_.sampled(std::move(batch));
        lock.lock();
        // A look that took longer than the interval is not made up for.
        next = std::max(next + interval_, std::chrono::steady_clock::now());
        wake_.wait_until(lock, next, [this] { return stop_; });
    }
}

// Who used a GPU that is lost now is who the error that comes with it concerns. The lock is held.
void GpuWatch::remember(const GpuBatch& batch) {
    std::erase_if(uses_, [&batch](const GpuUse& use) {
        return std::any_of(batch.gpus.begin(), batch.gpus.end(),
                           [&use](const GpuSample& gpu) { return gpu.gpu == use.gpu; });
    });
    uses_.insert(uses_.end(), batch.uses.begin(), batch.uses.end());
}

void GpuWatch::on_xid(std::uint32_t gpu, std::uint32_t xid) {
    const double now = seconds_now();
    std::int32_t rank = -1;
    {
        const std::lock_guard lock{mutex_};
        const auto known = xids_.find({gpu, xid});
        if (known == xids_.end() && xids_.size() >= limits::kGpuXids) {
            return;
        }
        auto& [newest, told] = known == xids_.end() ? xids_[{gpu, xid}] : known->second;
        newest = now;
        if (told > 0 && now - told < kXidAgainSeconds) {
            return;
        }
        told = now;
        rank = rank_on(gpu);
    }
    log::warn("GPU error", {{"gpu", gpu}, {"xid", xid}, {"rank", rank}});
    handlers_.failed({gpu, xid, now}, rank);
}

// The lock is held.
std::int32_t GpuWatch::rank_on(std::uint32_t gpu) const {
    std::int32_t rank = -1;
    for (const GpuUse& use : uses_) {
        if (use.gpu == gpu) {
            if (rank >= 0) {
                return -1;
            }
            rank = static_cast<std::int32_t>(use.rank);
        }
    }
    return rank;
}

}  // namespace lockstep
