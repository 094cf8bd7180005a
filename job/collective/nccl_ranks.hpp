// The communicator of nccl.hpp and the thread that watches it; made by nccl.cpp.
#pragma once

#include "job/collective/call.hpp"
#include "job/collective/nccl.hpp"
#include "job/collective/nccl_watch.hpp"
#include "job/collective/running_time.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

// What all parts need, made once. Any thread.
struct NcclNode {
    using Clock = std::chrono::steady_clock;

    NcclOptions options;
    NcclLibrary library;
    CudaDriver driver;
    cuda::Context context = nullptr;
    KeyStore* keys = nullptr;

    std::string key(const std::string& name) const { return options.prefix + "/" + name; }
    std::string key(const char* name, std::int32_t rank) const {
        return key(name + std::to_string(rank));
    }
    bool gives_up(Clock::time_point& next) const;
    // A rank asks so often whether another one is in trouble: more seldom, the more ask.
    Clock::duration alarm_every() const;
    // Makes it the GPU of the calling thread.
    void use_gpu() const;
    // What was noticed first, if anything was.
    std::optional<std::string> alarm() const;
    // Tells the other ranks, and finds out from what they say who is to blame. Takes as long as
    // options.verdict_timeout.
    std::string blame(const std::string& noticed, const NcclPosition& mine) const;
    // Which ranks have not begun the initialisation; the caller is told, if there are any. None if
    // the keys do not answer.
    NcclVerdict missing() const;
};

class NcclRanks final : public NcclCommunicator {
  public:
    NcclRanks(NcclNode node, nccl::Comm comm) : node_(std::move(node)), comm_(comm) {}
    ~NcclRanks() override;

    // Until every rank is there; then the watch begins.
    Status finish_init(nccl::Result begun);

    std::int32_t rank() const override { return node_.options.rank; }
    std::int32_t size() const override { return node_.options.size; }
    Device device() const override { return Device::cuda; }
    Result<std::unique_ptr<NcclCommunicator>> shrink(std::span<const std::int32_t> gone) override;

  private:
    using Clock = std::chrono::steady_clock;
    using Kind = CollectiveCall::Kind;
    struct Entry {
        cuda::Event event = nullptr;
        CollectiveCall call;
        Clock::duration waited{0};  // with none before it, in time that this process ran
    };
    struct Trouble {
        std::string text;
        nccl::Result error = nccl::kSuccess;
    };

    Status do_all_reduce(Buffer values, ReduceOp op, Stream stream) override;
    Status do_reduce(Buffer values, std::int32_t root, ReduceOp op, Stream stream) override;
    Status do_broadcast(Buffer values, std::int32_t root, Stream stream) override;
    Status do_all_gather(ConstBuffer mine, Buffer all, Stream stream) override;
    Status do_reduce_scatter(ConstBuffer all, Buffer mine, ReduceOp op, Stream stream) override;
    Status do_send(ConstBuffer values, std::int32_t to, Stream stream) override;
    Status do_recv(Buffer values, std::int32_t from, Stream stream) override;
    Status do_barrier(Stream stream) override;
    void do_abort() override { end_operations(); }

    template <class Function>
    Status enqueue(Kind kind, ConstBuffer values, ReduceOp op, std::int32_t root, Stream stream,
                   Function&& function);
    void count(const CollectiveCall& call);
    void note(const CollectiveCall& call, Stream stream);
    std::optional<std::string> late_words(const Entry& entry, const char* what) const;
    std::optional<Trouble> look();
    NcclPosition position(const Trouble& trouble);
    void watch();
    void stop_watching();
    void end_operations();

    NcclNode node_;
    std::mutex comm_mutex_;  // guards what follows: a call and an abort never meet in NCCL
    nccl::Comm comm_ = nullptr;
    std::optional<Entry> beginning_;  // called, and NCCL makes connections for it
    std::deque<Entry> under_way_;
    RunningTime time_;  // between two looks
    std::vector<cuda::Event> spare_events_;
    CollectiveCall last_;           // of all ranks
    std::int64_t collectives_ = 0;  // the same, called
    std::int64_t called_ = 0;       // with what goes between two
    std::int64_t done_ = 0;
    cuda::Pointer scratch_ = 0;

    std::mutex watch_mutex_;  // guards stop_
    std::condition_variable changed_;
    bool stop_ = false;
    std::thread watcher_;
};

}  // namespace lockstep
