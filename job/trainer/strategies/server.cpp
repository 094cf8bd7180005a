// The server's half of parameter_server: it holds a part of the parameters and the optimizer's
// state for it. One thread for each worker reads what that worker asks.
// sync: the gradients of all workers are waited for and used as their mean.
// async: each is used as it comes, on parameters that may have moved on since the worker read them.
#include "job/base/log.hpp"
#include "job/trainer/checkpoint_writer.hpp"
#include "job/trainer/kernels.hpp"
#include "job/trainer/strategies/server_messages.hpp"
#include "job/trainer/strategy.hpp"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

class Server {
  public:
    Server(const TrainConfig& config, const ServerPart& part, std::size_t workers,
           std::filesystem::path checkpoints)
        : config_(config),
          part_(part),
          checkpoints_(std::move(checkpoints)),
          optimizer_(optimizer_options(config), part.floats(), part.layers),
          values_(part.floats()),
          gradients_(workers, std::vector<float>(part.floats())),
          stops_(workers, 0),
          skips_(workers, 0),
          steps_(workers, 0),
          trains_(workers, true) {}

    // One worker until it is done.
    Status talk(Communicator& pair, std::size_t worker) {
        for (;;) {
            ServerAsk ask;
            if (const Status got = receive_message(pair, ask, kWorkerOfPair); !got) {
                return lost(worker, got.error());
            }
            if (ask.kind == ServerAsk::Kind::done) {
                const std::lock_guard lock{mutex_};
                trains_[worker] = false;
                return {};
            }
            if (const Status answered = answer(pair, worker, ask); !answered) {
                return lost(worker, answered.error());
            }
        }
    }

    // Returns when the last part is written.
    Status finish_writing() {
        const std::lock_guard lock{mutex_};
        return written();
    }

  private:
    using Kind = ServerAsk::Kind;

    Status answer(Communicator& pair, std::size_t worker, const ServerAsk& ask) {
        if (ask.kind == Kind::load) {
            return load(pair, ask);
        }
        if (ask.kind == Kind::save) {
            ServerAnswer copied;
            const Status saved = save(ask, copied);
            return saved ? send_message(pair, copied, kWorkerOfPair) : saved;
        }
        ServerAnswer out;
        if (ask.kind == Kind::push) {
            if (const Status got = pair.recv(buffer_of(gradients_[worker]), kWorkerOfPair); !got) {
                return got;
            }
            if (const Status used = use(worker, ask, out); !used) {
                return used;
            }
        }
        if (ask.kind == Kind::settled && settle(worker, ask, out) > 0) {
            return send_message(pair, out, kWorkerOfPair);
        }
        std::vector<float> values;
        std::vector<float> moments;
        {
            std::unique_lock lock{mutex_};
            changed_.wait(lock, [this] { return loaded_ || error_; });
            if (error_) {
                return fail(*error_);
            }
            out.version = version_;
            values = values_;
            if (ask.kind == Kind::state) {
                moments.assign(optimizer_.state().begin(), optimizer_.state().end());
            }
        }
        if (const Status sent = send_message(pair, out, kWorkerOfPair); !sent) {
            return sent;
        }
        const Status sent = pair.send(buffer_of(values), kWorkerOfPair);
        return sent && ask.kind == Kind::state ? pair.send(buffer_of(moments), kWorkerOfPair)
                                               : sent;
    }

    Status load(Communicator& pair, const ServerAsk& ask) {
        const std::lock_guard lock{mutex_};  // nobody else asks before it is loaded
        Status got = pair.recv(buffer_of(values_), kWorkerOfPair);
        if (got) {
            got = pair.recv(buffer_of(optimizer_.state()), kWorkerOfPair);
        }
        version_ = ask.version;
        optimizer_.set_steps(ask.version);
        loaded_ = got.has_value();
        changed_.notify_all();
        return got;
    }

    // A copy of this server's part, which is written while the training goes on.
    Status save(const ServerAsk& ask, ServerAnswer& out) {
        const std::lock_guard lock{mutex_};
        if (const Status before = written(); !before) {
            return before;
        }
        out.version = version_;
        copy_slice(copy_, 0, Section::parameters, part_.begin, values_);
        const std::size_t blocks = Optimizer::moments(config_.optimizer);
        for (std::size_t block = 0; block < blocks; ++block) {
            copy_slice(copy_, 1 + block, Section::optimizer, block * part_.whole + part_.begin,
                       optimizer_.state().subspan(block * values_.size(), values_.size()));
        }
        const PartSet set{ask.version, ask.start, part_.servers + 1};
        writer_.begin([] {},
                      [this, set]() -> Result<std::string> {
                          const Result<std::filesystem::path> path =
                              write_part(checkpoints_, set, part_.index + 1, copy_);
                          return path ? Result<std::string>{path->string()} : fail(path.error());
                      });
        return {};
    }

    // The part before is written; its error.
    Status written() {
        const std::optional<Result<std::string>> outcome = writer_.take(/*wait=*/true);
        return outcome && !*outcome ? fail(outcome->error()) : Status{};
    }

    // The workers that still have steps to make. One that was stopped or lost has none, but is as
    // far as it came.
    std::int64_t settle(std::size_t worker, const ServerAsk& ask, ServerAnswer& out) {
        const std::lock_guard lock{mutex_};
        stop_ = stop_ || ask.stop != 0;
        trains_[worker] = false;
        steps_[worker] = INT64_MAX;
        out.training = std::count(trains_.begin(), trains_.end(), true);
        out.slowest = *std::min_element(steps_.begin(), steps_.end());
        out.stop = stop_ ? 1 : 0;
        return out.training;
    }

    // Returns when the gradient is in the parameters.
    Status use(std::size_t worker, const ServerAsk& ask, ServerAnswer& out) {
        std::unique_lock lock{mutex_};
        if (error_) {
            return fail(*error_);
        }
        steps_[worker] = ask.step;
        if (config_.update == TrainUpdate::async) {
            out.staleness = version_ - ask.version;
            stop_ = stop_ || ask.stop != 0;
            skipped_ = ask.skip != 0;
            squares_ = std::numeric_limits<double>::infinity();
            if (!skipped_) {
                apply(gradients_[worker], 1.0, ask.rate);
            }
        } else {
            const std::int64_t before = rounds_;
            stops_[worker] = ask.stop;
            skips_[worker] = ask.skip;
            if (++arrived_ == gradients_.size()) {
                apply_all(ask.rate);
            } else {
                changed_.wait(lock, [&] { return rounds_ != before || error_; });
                if (rounds_ == before) {
                    return fail(*error_);
                }
            }
        }
        out.stop = stop_ ? 1 : 0;
        out.skipped = skipped_ ? 1 : 0;
        out.squares = squares_;
        return {};
    }

    // The sum in the workers' order: the same bits however they arrive.
    void apply_all(double rate) {
        for (std::size_t i = 1; i < gradients_.size(); ++i) {
            kernels::add_scaled(gradients_[0].data(), gradients_[i].data(), values_.size(), 1.0F);
        }
        const auto is_set = [](std::int64_t flag) { return flag != 0; };
        stop_ = std::any_of(stops_.begin(), stops_.end(), is_set);
        skipped_ = std::any_of(skips_.begin(), skips_.end(), is_set);
        arrived_ = 0;
        ++rounds_;
        squares_ = std::numeric_limits<double>::infinity();
        if (!skipped_) {
            apply(gradients_[0], 1.0 / static_cast<double>(gradients_.size()), rate);
        }
        changed_.notify_all();
    }

    void apply(std::vector<float>& gradient, double mean, double rate) {
        squares_ = kernels::sum_of_squares(gradient.data(), gradient.size()) * mean * mean;
        // With several servers make_parameter_server() has refused to clip.
        const double clip = config_.update == TrainUpdate::sync
                                ? clip_factor(std::sqrt(squares_), config_.gradient_clip)
                                : 1.0;
        optimizer_.step(values_, gradient, static_cast<float>(mean * clip), rate);
        ++version_;
    }

    // With sync nobody can go on without that worker.
    Status lost(std::size_t worker, const Error& why) {
        Error error = why;
        error = std::move(error).in("worker " + std::to_string(worker));
        const std::lock_guard lock{mutex_};
        trains_[worker] = false;
        if (config_.update == TrainUpdate::sync || !loaded_) {
            if (!error_) {
                error_ = error;
            }
            changed_.notify_all();
            return fail(*error_);
        }
        log::warn("a worker was lost, the others go on", {{"reason", error.message}});
        return fail(std::move(error));
    }

    TrainConfig config_;
    ServerPart part_;
    std::filesystem::path checkpoints_;
    std::mutex mutex_;  // guards everything below, but a worker's gradient until it has arrived
    std::condition_variable changed_;
    Optimizer optimizer_;
    std::vector<float> values_;
    std::vector<std::vector<float>> gradients_;  // by worker
    std::vector<std::int64_t> stops_;            // by worker
    std::vector<std::int64_t> skips_;            // by worker
    std::vector<std::int64_t> steps_;            // by worker: the last one; all made: INT64_MAX
    std::vector<bool> trains_;                   // by worker: it may push again
    std::size_t arrived_ = 0;
    std::int64_t rounds_ = 0;  // sync: all gradients were there
    std::int64_t version_ = 0;
    double squares_ = 0.0;
    bool loaded_ = false;
    bool stop_ = false;
    bool skipped_ = false;  // the last gradients were not used
    std::optional<Error> error_;
    CheckpointPart copy_;      // while writer_ is at it, nobody else's
    CheckpointWriter writer_;  // last: it uses the copy
};

// A server's life over its connections: returns when every worker is done and its part of the last
// checkpoint is written. unavailable: a worker was lost; with sync at once, with async after the
// others.
Status serve_workers(const TrainConfig& config, const ServerPart& part,
                     std::vector<std::unique_ptr<Communicator>>& workers,
                     const std::filesystem::path& checkpoints) {
    Server server{config, part, workers.size(), checkpoints};
    std::vector<Status> ends(workers.size());
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < workers.size(); ++i) {
            threads.emplace_back([&, i] { ends[i] = server.talk(*workers[i], i); });
        }
    }
    for (const Status& end : ends) {
        if (!end) {
            return end;
        }
    }
    return server.finish_writing();
}

class ServerRank final : public Strategy {
  public:
    ServerRank(const TrainConfig& config, ServerPart part, World& world,
               std::vector<std::unique_ptr<Communicator>> workers)
        : Strategy(config),
          config_(config),
          part_(std::move(part)),
          all_(world.all()),
          workers_(std::move(workers)) {}

    bool serves() const override { return true; }
    Status serve(const std::filesystem::path& checkpoints) override {
        return serve_workers(config_, part_, workers_, checkpoints);
    }
    Communicator& trainers() override { return all_; }
    Shard shard() const override { return {}; }
    Status step(Loader&, StepResult&) override { return not_here(); }
    Result<Evaluation> evaluate(const SampleSet&) override { return fail(not_here().error()); }
    Status collect(Checkpoint&) override { return {}; }
    bool root_has_all() const override { return true; }
    Status snapshot(const PartSet&, Snapshot&) override { return not_here(); }
    Status distribute(Checkpoint&) override { return {}; }

  private:
    static Status not_here() { return fail(Errc::internal, "a parameter server does not train"); }

    TrainConfig config_;
    ServerPart part_;
    Communicator& all_;
    std::vector<std::unique_ptr<Communicator>> workers_;
};

}  // namespace

std::vector<ServerPart> server_parts(const FlatLayout& layout, std::size_t servers) {
    std::vector<ServerPart> parts(servers);
    std::size_t part = 0;
    for (std::size_t i = layout.ranges.size(); i-- > 0;) {  // flat order is the reverse of use
        const std::size_t begin = layout.ranges[i].offset;
        const std::size_t end = i == 0 ? layout.floats : layout.ranges[i - 1].offset;
        // The next server begins where this parameter's middle is behind this server's share.
        while (part + 1 < servers && (begin + end) * servers / 2 > (part + 1) * layout.floats) {
            ++part;
            parts[part].begin = parts[part].end = begin;
        }
        parts[part].end = end;
        parts[part].layers.push_back({begin - parts[part].begin, layout.ranges[i].count});
    }
    for (++part; part < servers; ++part) {
        parts[part].begin = parts[part].end = layout.floats;
    }
    for (std::size_t i = 0; i < servers; ++i) {
        parts[i].whole = layout.floats;
        parts[i].index = static_cast<std::int32_t>(i);
        parts[i].servers = static_cast<std::int32_t>(servers);
    }
    return parts;
}

std::unique_ptr<Strategy> make_server_rank(const TrainConfig& config, ServerPart part, World& world,
                                           std::vector<std::unique_ptr<Communicator>> workers) {
    return std::make_unique<ServerRank>(config, std::move(part), world, std::move(workers));
}

}  // namespace lockstep
