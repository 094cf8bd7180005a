#include "job/nccl_test/nccl_pair.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/collective/memory_key_store.hpp"
#include "job/collective/peer_keys.hpp"
#include "job/nccl_test/gpu_rank.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// For the ranks to say where they are, once one of them is silent; their watch takes 2 s more.
constexpr milliseconds kVerdict{1'000};
constexpr milliseconds kSilence{8'000};  // of one operation: the largest takes below 1 s
constexpr milliseconds kInit{12'000};    // of NCCL's initialisation, which takes 2 s
constexpr milliseconds kPeerDoneWait{1'000};
constexpr milliseconds kLook{100};
// After its patience: for what is silent in the sum, and for the other one to be done. What is not
// over by then hangs in a call that does not come back.
constexpr milliseconds kOverdue{6'000};

milliseconds left_until(Clock::time_point end) {
    return std::max(std::chrono::duration_cast<milliseconds>(end - Clock::now()), milliseconds{1});
}

// What one node has, as both tell each other.
struct NcclHello {
    std::int32_t gpus = 0;
    std::string version;
    std::string error;

    std::string encode() const {
        Json out = Json::object();
        out["gpus"] = gpus;
        out["nccl"] = version;
        out["error"] = error;
        return dump_json(out);
    }
    static Result<NcclHello> decode(const std::string& text) {
        const auto json = parse_json(text);
        LOCKSTEP_TRY(json);
        std::vector<FieldError> errors;
        NcclHello out;
        ObjectReader in{*json, "", errors};
        in.integer("gpus", out.gpus, 0, limits::kGpusPerNode);
        in.string("nccl", out.version, limits::kTextBytes);
        in.string("error", out.error, limits::kTextBytes);
        if (!errors.empty()) {
            return fail(field_errors(std::move(errors)));
        }
        return out;
    }
};

class NcclPair {
  public:
    NcclPair(const PairTask& task, milliseconds patience, const TellNccl& tell)
        : task_(task), end_(Clock::now() + patience), tell_(tell) {}

    NcclPairEnd run() {
        load();
        if (meet() && greet()) {
            sum();
            leave();
        }
        return out_;
    }
    Clock::time_point overdue() const { return end_ + kOverdue; }
    // What is known of a test that is overdue; any thread.
    NcclPairEnd stuck() {
        const std::lock_guard lock{mutex_};
        NcclPairEnd out;
        out.error = "not over in time, in: " + stage_ + verdict_words();
        out.fact.blames = blamed();
        return out;
    }

  private:
    bool failed(std::string error, NcclBlame blames) {
        out_.error = printable(error).substr(0, limits::kTextBytes - 16);
        out_.fact.blames = blames;
        return false;
    }
    void stage(const std::string& name) {
        {
            const std::lock_guard lock{mutex_};
            stage_ = name;
        }
        tell_({{"stage", name}});
    }
    std::string other() const { return task_.partner.empty() ? "the other node" : task_.partner; }

    void load() {
        stage("loading the GPU's driver and NCCL");
        auto driver = load_cuda();
        auto library = driver ? load_nccl() : Result<NcclLibrary>{fail(driver.error())};
        int gpus = 0;
        if (driver) {
            driver_ = *driver;
            driver_.api.device_get_count(&gpus);
        }
        if (!library) {
            mine_.error = printable(library.error().message).substr(0, limits::kTextBytes - 16);
            out_.fact.unloadable = true;
            return;
        }
        mine_.version = library->version_text();
        mine_.gpus = std::min({gpus, task_.gpus > 0 ? task_.gpus : gpus, limits::kGpusPerNode});
        if (mine_.gpus == 0) {
            mine_.error = "no GPU can be used: the driver sees none";
        } else if (library->api.comm_init_rank_config == nullptr) {
            mine_.error = "NCCL has no ncclCommInitRankConfig";
        } else {
            tell_({{"gpus", mine_.gpus}, {"nccl", mine_.version}});
        }
        out_.fact.unloadable = !mine_.error.empty();
    }

    bool meet() {
        if (task_.alone) {
            keys_ = std::make_unique<MemoryKeyStore>();
            return true;
        }
        stage("meeting " + other());
        auto fd =
            meet_peer({task_.lead, task_.token, task_.address, task_.peers, task_.port}, end_);
        if (!fd) {
            const bool partner = fd.error().code == Errc::timed_out && mine_.error.empty();
            return failed(mine_.error.empty() ? fd.error().message : mine_.error,
                          partner ? NcclBlame::partner : NcclBlame::self);
        }
        auto peer = std::make_unique<PeerKeyStore>(std::move(*fd), true);
        peer_ = peer.get();
        keys_ = std::move(peer);
        return true;
    }

    // What the other node sets, or one of this one's threads.
    Result<std::string> wait_for(const std::string& key, milliseconds timeout) {
        const auto end = Clock::now() + timeout;
        for (;;) {
            const bool gone = peer_ != nullptr && peer_->left();  // before the look: its last keys
            auto said = keys_->wait(key, std::min(kLook, left_until(end)));
            if (said) {
                return said;
            }
            if (gone) {
                return fail(Errc::unavailable, other() + " has left");
            }
            if (Clock::now() >= end) {
                return fail(Errc::timed_out, other() + " does not answer");
            }
        }
    }

    // That one of the two cannot take part, or has another NCCL, is found before NCCL would wait.
    bool greet() {
        std::optional<NcclHello> theirs;
        if (!task_.alone) {
            static_cast<void>(keys_->set(task_.lead ? "hello/1" : "hello/2", mine_.encode()));
            const auto said = wait_for(task_.lead ? "hello/2" : "hello/1", left_until(end_));
            auto hello = said ? NcclHello::decode(*said) : Result<NcclHello>{fail(said.error())};
            if (!hello && mine_.error.empty()) {
                return failed(hello.error().message, NcclBlame::partner);
            }
            if (hello) {
                theirs = std::move(*hello);
            }
        }
        if (!mine_.error.empty()) {
            return failed(mine_.error, NcclBlame::self);
        }
        if (theirs && !theirs->error.empty()) {
            return failed(other() + ": " + theirs->error, NcclBlame::partner);
        }
        if (theirs && theirs->version != mine_.version) {
            return failed(
                "NCCL is " + mine_.version + " here and " + theirs->version + " on " + other(),
                NcclBlame::unknown);
        }
        first_ = theirs && !task_.lead ? theirs->gpus : 0;
        size_ = mine_.gpus + (theirs ? theirs->gpus : 0);
        return true;
    }

    // All ranks of both nodes have the id of rank 0.
    Result<std::vector<NcclUniqueId>> exchange(std::int32_t rank,
                                               const std::function<Result<NcclUniqueId>()>& make) {
        if (rank == 0) {
            auto id = make();
            if (!id) {
                static_cast<void>(keys_->set("id", ""));  // nobody waits for it
            }
            LOCKSTEP_TRY(id);
            LOCKSTEP_TRY(keys_->set("id", {reinterpret_cast<const char*>(id->data()), id->size()}));
            return std::vector<NcclUniqueId>{*id};
        }
        const auto said = wait_for("id", left_until(end_));
        LOCKSTEP_TRY(said);
        NcclUniqueId id{};
        if (said->size() != id.size()) {
            return fail(Errc::invalid, "no NCCL id came");
        }
        std::memcpy(id.data(), said->data(), id.size());
        return std::vector<NcclUniqueId>{id};
    }

    // "rank 3 is GPU 1 of n2"
    std::string name_of(std::int32_t rank) const {
        const bool here = rank >= first_ && rank < first_ + mine_.gpus;
        const std::int32_t gpu = here ? rank - first_ : rank - (task_.lead ? mine_.gpus : 0);
        return "rank " + std::to_string(rank) + " is GPU " + std::to_string(gpu) + " of " +
               (here ? "this node" : other());
    }

    void note_verdict(const NcclVerdict& verdict) {
        const std::lock_guard lock{mutex_};
        if (!verdict_ || (verdict_->culprits.empty() && !verdict.culprits.empty())) {
            verdict_ = verdict;
        }
    }

    void sum() {
        GpuRanks shared{mine_.gpus};
        shared.driver = driver_;
        shared.keys = keys_.get();
        shared.stage = [this](const char* name) { stage(name); };
        std::vector<GpuRankResult> results(static_cast<std::size_t>(mine_.gpus));
        std::vector<std::thread> threads;
        for (std::int32_t gpu = 0; gpu < mine_.gpus; ++gpu) {
            threads.emplace_back([this, gpu, &shared, &results] {
                NcclOptions options;
                options.rank = first_ + gpu;
                options.size = size_;
                options.gpu = gpu;
                options.init_timeout = std::min(kInit, left_until(end_));
                options.silence = kSilence;
                options.verdict_timeout = kVerdict;
                options.on_verdict = [this](const NcclVerdict& one) { note_verdict(one); };
                // The same for all: the rank is known here.
                auto& result = results[static_cast<std::size_t>(gpu)];
                result = run_gpu_rank(options, shared, [this, &options](const auto& make) {
                    return exchange(options.rank, make);
                });
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        take(results);
        // Neither NCCL nor the driver is asked to end anything: the process does.
        for (GpuRankResult& one : results) {
            static_cast<void>(one.ranks.release());
        }
    }

    // Whose the culprits of NCCL's watch are; with mutex_.
    NcclBlame blamed() const {
        if (!verdict_ || verdict_->culprits.empty()) {
            return NcclBlame::unknown;
        }
        const auto here = std::count_if(
            verdict_->culprits.begin(), verdict_->culprits.end(),
            [this](auto rank) { return rank >= first_ && rank < first_ + mine_.gpus; });
        return here == 0 ? NcclBlame::partner
               : here == static_cast<std::ptrdiff_t>(verdict_->culprits.size())
                   ? NcclBlame::self
                   : NcclBlame::unknown;
    }
    std::string verdict_words() const {
        return verdict_ && !verdict_->culprits.empty() ? "; " + name_of(verdict_->culprits.front())
                                                       : "";
    }

    // A GPU's own error says more than what the others saw of it.
    static int weight(const GpuRankResult& one) {
        return one.error.empty() ? 0 : one.own ? 3 : one.of_another ? 1 : 2;
    }

    void take(const std::vector<GpuRankResult>& results) {
        const auto bad =
            std::max_element(results.begin(), results.end(),
                             [](const auto& a, const auto& b) { return weight(a) < weight(b); });
        NcclTestFact& fact = out_.fact;
        if (weight(*bad) > 0) {
            const std::lock_guard lock{mutex_};
            if (bad->own) {
                failed(bad->error, NcclBlame::self);
            } else {
                failed(bad->error + verdict_words(), blamed());
            }
            return;
        }
        fact.ranks = size_;
        fact.nodes = task_.alone ? 1 : 2;
        fact.bytes = results.front().bytes;
        out_.bus_bytes_per_second = results.front().bus_bytes_per_second;
        out_.latency_seconds = results.front().latency_seconds;
        for (const GpuRankResult& one : results) {
            fact.wrong += one.wrong;
        }
    }

    // A process that ends takes its connections with it: not before the other one has its results.
    void leave() {
        if (!task_.alone) {
            static_cast<void>(keys_->set(task_.lead ? "done/1" : "done/2", "1"));
            static_cast<void>(wait_for(task_.lead ? "done/2" : "done/1", kPeerDoneWait));
        }
    }

    const PairTask& task_;
    Clock::time_point end_;
    const TellNccl& tell_;
    NcclPairEnd out_;
    CudaDriver driver_;
    NcclHello mine_;
    std::unique_ptr<KeyStore> keys_;
    PeerKeyStore* peer_ = nullptr;  // the same, of two nodes
    std::int32_t first_ = 0;        // rank of this node's first GPU
    std::int32_t size_ = 0;
    std::mutex mutex_;  // guards what follows
    std::optional<NcclVerdict> verdict_;
    std::string stage_;
};

}  // namespace

NcclPairEnd run_nccl_pair(const PairTask& task, std::chrono::milliseconds patience,
                          const TellNccl& tell, const NcclOverdue& overdue) {
    // Never freed: communicators that are left to the end of the process watch with its keys, and
    // so does the thread below.
    auto* const pair = new NcclPair{task, patience, tell};
    std::thread{[pair, overdue] {
        std::this_thread::sleep_until(pair->overdue());
        overdue(pair->stuck());
    }}.detach();
    return pair->run();
}

}  // namespace lockstep
