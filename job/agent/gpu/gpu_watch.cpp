#include "job/agent/gpu/gpu_watch.hpp"

#include "job/agent/gpu/gpu_sampler.hpp"
#include "job/agent/gpu/rank_processes.hpp"
#include "job/agent/gpu/xid_watch.hpp"
#include "job/base/clock.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kStopWait{2'000};

double seconds_now() {
    return static_cast<double>(SystemClock{}.wall()) / 1000.0;
}

}  // namespace

struct GpuWatch::Shared {
    void run();
    void watch(const Nvml& nvml);
    void remember(const GpuBatch& batch);
    void on_xid(std::uint32_t gpu, std::uint32_t xid);
    std::int32_t rank_on(std::uint32_t gpu) const;
    void end();

    Handlers handlers;
    std::chrono::milliseconds interval{};
    std::string library;
    std::mutex telling;   // of the handlers and `closed`
    bool closed = false;  // the handlers' owner may be gone
    std::mutex mutex;     // of all below
    std::condition_variable wake;
    bool stop = false;
    std::map<std::int64_t, std::uint32_t> pids;
    std::vector<GpuUse> uses;  // of every GPU when it was seen last
    // By GPU and number: the newest, and when one was handed on.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<double, double>> xids;
};

GpuWatch::GpuWatch(Handlers handlers, std::chrono::milliseconds interval, const char* library)
    : shared_(std::make_shared<Shared>()),
      thread_([shared = shared_, handlers = std::move(handlers), interval,
               name = std::string{library}]() mutable {
          shared->handlers = std::move(handlers);
          shared->interval = interval;
          shared->library = std::move(name);
          shared->run();
      }) {}

GpuWatch::~GpuWatch() {
    shared_->end();
    if (!thread_.finish(kStopWait)) {
        log::warn("the GPU driver does not answer: its threads are left behind");
    }
}

void GpuWatch::set_ranks(std::map<std::int64_t, std::uint32_t> pids) {
    const std::lock_guard lock{shared_->mutex};
    shared_->pids = std::move(pids);
}

void GpuWatch::Shared::end() {
    {
        const std::lock_guard lock{telling};
        closed = true;
    }
    {
        const std::lock_guard lock{mutex};
        stop = true;
    }
    wake.notify_all();
}

void GpuWatch::Shared::run() {
    const auto nvml = Nvml::open(library.c_str());
    if (!nvml) {
        log::info("no GPU metrics", {{"why", nvml.error().message}});
        return;
    }
    watch(**nvml);
}

void GpuWatch::Shared::watch(const Nvml& nvml) {
    GpuSampler sampler{nvml};
    if (sampler.gpus() == 0) {
        log::info("no GPU metrics", {{"why", "the driver shows no GPU"}});
        return;
    }
    log::info("GPUs are watched", {{"gpus", sampler.gpus()}});
    const XidWatch errors{nvml, sampler.handles(),
                          [this](std::uint32_t gpu, std::uint32_t xid) { on_xid(gpu, xid); }};
    std::unique_lock lock{mutex};
    auto next = std::chrono::steady_clock::now();
    while (!stop) {
        const RankProcesses processes{pids};
        lock.unlock();
        GpuBatch batch = sampler.sample(seconds_now(), processes);
        lock.lock();
        remember(batch);
        for (const auto& [key, times] : xids) {
            batch.xids.push_back({key.first, key.second, times.first});
        }
        lock.unlock();
        {
            const std::lock_guard one{telling};
            if (!closed) {
                handlers.sampled(std::move(batch));
            }
        }
        lock.lock();
        // A look that took longer than the interval is not made up for.
        next = std::max(next + interval, std::chrono::steady_clock::now());
        wake.wait_until(lock, next, [this] { return stop; });
    }
}

// Who used a GPU that is lost now is who the error that comes with it concerns. The lock is held.
void GpuWatch::Shared::remember(const GpuBatch& batch) {
    std::erase_if(uses, [&batch](const GpuUse& use) {
        return std::any_of(batch.gpus.begin(), batch.gpus.end(),
                           [&use](const GpuSample& gpu) { return gpu.gpu == use.gpu; });
    });
    uses.insert(uses.end(), batch.uses.begin(), batch.uses.end());
}

void GpuWatch::Shared::on_xid(std::uint32_t gpu, std::uint32_t xid) {
    const double now = seconds_now();
    std::int32_t rank = -1;
    {
        const std::lock_guard lock{mutex};
        const auto known = xids.find({gpu, xid});
        if (known == xids.end() && xids.size() >= limits::kGpuXids) {
            return;
        }
        auto& [newest, told] = known == xids.end() ? xids[{gpu, xid}] : known->second;
        newest = now;
        if (told > 0 && now - told < limits::kXidPauseSeconds) {
            return;
        }
        told = now;
        rank = rank_on(gpu);
    }
    log::warn("GPU error", {{"gpu", gpu}, {"xid", xid}, {"rank", rank}});
    const std::lock_guard one{telling};
    if (!closed) {
        handlers.failed({gpu, xid, now}, rank);
    }
}

// The lock is held.
std::int32_t GpuWatch::Shared::rank_on(std::uint32_t gpu) const {
    std::int32_t rank = -1;
    for (const GpuUse& use : uses) {
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
