// parameter_server: the servers hold the parameters and make the steps (server.cpp); the workers
// read their share of the samples, send gradients and get parameters back. Each server has a part
// of the parameters, so a worker talks to all of them. A worker may compute on a GPU; what it sends
// and gets goes through the host's memory.
#include "job/trainer/device.hpp"
#include "job/trainer/kernels.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategies/device_wait.hpp"
#include "job/trainer/strategies/held_state.hpp"
#include "job/trainer/strategies/kept_averages.hpp"
#include "job/trainer/strategies/server_messages.hpp"
#include "job/trainer/strategy.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

using Kind = ServerAsk::Kind;
using Links = std::vector<std::unique_ptr<Communicator>>;

class Worker final : public Strategy {
  public:
    Worker(const TrainConfig& config, const ModelShape& shape, std::vector<ServerPart> parts,
           std::unique_ptr<Communicator> workers, std::unique_ptr<Communicator> alone,
           Links servers, at::Device device)
        : Strategy(config),
          config_(config),
          workers_(std::move(workers)),
          alone_(std::move(alone)),
          servers_(std::move(servers)),
          parts_(std::move(parts)),
          versions_(servers_.size(), 0),
          device_(device),
          model_(make_model(config, shape, device)),
          values_(model_->parameters().flat_values()),
          gradients_(without_flag(model_->parameters().flat_gradients())),
          buffers_(model_->flat_buffers()),
          averages_(model_->flat_buffers()),
          pass_(config, workers_->rank(), device) {}

    Shard shard() const override { return {workers_->rank(), workers_->size()}; }
    Communicator& trainers() override { return *workers_; }

    Status step(Loader& loader, StepResult& result) override {
        averages_.keep();
        return averages_.unless_finished(make_step(loader, result));
    }

    Status make_step(Loader& loader, StepResult& result) {
        {
            const at::NoGradGuard no_gradients;
            at::Tensor all = model_->parameters().flat_gradients();
            all.zero_();
        }
        if (const Status computed = pass_.run(*model_, loader, result, scaler().scale(), [] {});
            !computed) {
            return computed;
        }
        const auto start = Clock::now();
        gradients_.fetch();
        wait_for_own_work(device_);
        const std::span<float> gradients = gradients_.values();
        const bool clips = config_.update == TrainUpdate::async && config_.gradient_clip > 0.0;
        ServerAsk ask;
        if (clips || scaler().active()) {
            const double squares = kernels::sum_of_squares(gradients.data(), gradients.size());
            double factor = 1.0 / scaler().scale();
            factor *= clips ? clip_factor(std::sqrt(squares) * factor, config_.gradient_clip) : 1.0;
            ask.skip = scaler().active() && !std::isfinite(squares) ? 1 : 0;
            std::for_each(gradients.begin(), gradients.end(),
                          [by = static_cast<float>(factor)](float& g) { g *= by; });
        }
        ask.kind = Kind::push;
        ask.step = result.step;
        ask.rate = result.learning_rate;
        ask.stop = stop_signal::requested() ? 1 : 0;
        // All servers get their part before the first one is waited for.
        for (std::size_t i = 0; i < servers_.size(); ++i) {
            ask.version = versions_[i];
            if (const Status sent = send(i, ask, gradients); !sent) {
                return sent;
            }
        }
        result.staleness = 0;
        double squares = 0.0;
        for (std::size_t i = 0; i < servers_.size(); ++i) {
            ServerAnswer answer;
            if (const Status got = receive(i, answer); !got) {
                return got;
            }
            result.staleness = std::max(result.staleness, answer.staleness);
            result.stop = result.stop || answer.stop != 0;
            result.skipped = result.skipped || answer.skipped != 0;
            squares += answer.squares;
        }
        values_.store();
        result.gradient_norm = std::sqrt(squares);
        result.comm_wait_seconds = std::chrono::duration<double>(Clock::now() - start).count();
        result.checkpoint = stop_signal::take_checkpoint_request();
        const Result<bool> used = scaler().use(!result.skipped);
        return used ? Status{} : fail(used.error());
    }

    // With async the workers are not at the same step, so each looks at its own share alone.
    Result<Evaluation> evaluate(const SampleSet& test) override {
        if (config_.update == TrainUpdate::async) {
            return evaluate_model(*model_, test, config_.loss, *alone_, device_);
        }
        fetch_buffers();
        const Status sent = workers_->broadcast(std::as_writable_bytes(buffers_.values()), 0);
        LOCKSTEP_TRY(sent);
        buffers_.store();
        return evaluate_model(*model_, test, config_.loss, *workers_, device_);
    }

    Status collect(Checkpoint& state) override {
        values_.fetch();
        fetch_buffers();
        const std::size_t floats = values_.values().size();
        state.parameters.assign(values_.values().begin(), values_.values().end());
        state.buffers.assign(buffers_.values().begin(), buffers_.values().end());
        state.optimizer.assign(moments() * floats, 0.0F);
        state.layout = model_->parameters().layout().json();
        if (!loaded_ || workers_->rank() != 0) {
            return {};  // the servers know nothing yet
        }
        for (std::size_t i = 0; i < servers_.size(); ++i) {
            if (const Status got = read_server(i, state, floats); !got) {
                return got;
            }
        }
        return {};
    }
    bool root_has_all() const override { return true; }

    // The first worker writes the moving averages, and every server its parameters.
    Status snapshot(const PartSet& set, Snapshot& out) override {
        ServerAsk ask;
        ask.kind = Kind::save;
        ask.version = set.step;
        ask.start = set.start;
        for (std::size_t i = 0; i < servers_.size(); ++i) {
            if (const Status sent = send(i, ask, {}); !sent) {
                return sent;
            }
        }
        fetch_buffers();
        const std::size_t floats = values_.values().size();
        out.index = 0;
        out.count = static_cast<std::int32_t>(servers_.size()) + 1;
        out.sizes = {floats, buffers_.values().size(), moments() * floats};
        copy_slice(out.part, 0, Section::buffers, 0, buffers_.values());
        if (out.layout.empty()) {
            out.layout = model_->parameters().layout().json();
        }
        // A server answers once it has its copy: what the next push makes of it is another state.
        for (std::size_t i = 0; i < servers_.size(); ++i) {
            ServerAnswer answer;
            if (const Status got = named(i, receive_message(*servers_[i], answer, kServerOfPair));
                !got) {
                return got;
            }
            // The others' are of this moment, too: a few updates more or less.
            out.optimizer_steps = i == 0 ? answer.version : out.optimizer_steps;
        }
        return {};
    }

    Status distribute(Checkpoint& state) override {
        const std::span<float> buffers{state.buffers};
        if (const Status sent = workers_->broadcast(std::as_writable_bytes(buffers), 0); !sent) {
            return sent;
        }
        std::copy(buffers.begin(), buffers.end(), buffers_.values().begin());
        buffers_.store();
        for (std::size_t i = 0; workers_->rank() == 0 && i < servers_.size(); ++i) {
            if (const Status sent = load_server(i, state); !sent) {
                return sent;
            }
        }
        // A server answers once it was loaded.
        for (std::size_t i = 0; i < servers_.size(); ++i) {
            ServerAnswer answer;
            Status got = send(i, ServerAsk{}, {});
            if (got) {
                got = receive(i, answer);
            }
            if (!got) {
                return got;
            }
        }
        values_.store();
        loaded_ = true;
        return {};
    }

    bool steps_apart() const override { return config_.update == TrainUpdate::async; }
    // Every server is asked each time: none may hear nothing for longer than its patience.
    Result<OtherWorkers> settled() override {
        OtherWorkers out;
        ServerAsk ask;
        ask.kind = Kind::settled;
        ask.stop = stop_signal::requested() ? 1 : 0;
        for (std::size_t i = 0; i < servers_.size(); ++i) {
            ServerAnswer answer;
            Status got = send(i, ask, {});
            if (got) {
                got = receive(i, answer);
            }
            LOCKSTEP_TRY(got);
            out.training = std::max(out.training, answer.training);
            out.slowest = std::min(out.slowest, answer.slowest);
            out.stop = out.stop || answer.stop != 0;
        }
        if (out.training == 0) {
            values_.store();
        }
        return out;
    }

    Status finish() override {
        ServerAsk ask;
        ask.kind = Kind::done;
        for (std::size_t i = 0; i < servers_.size(); ++i) {
            if (const Status sent = send(i, ask, {}); !sent) {
                return sent;
            }
        }
        return {};
    }

  private:
    using Clock = std::chrono::steady_clock;

    static at::Tensor without_flag(const at::Tensor& gradients) {
        return gradients.narrow(0, 0, gradients.numel() - 1);
    }
    void fetch_buffers() {
        buffers_.fetch();
        wait_for_own_work(device_);
    }
    std::size_t moments() const { return Optimizer::moments(config_.optimizer); }
    std::span<float> part_of(std::size_t server, std::span<float> flat) const {
        return flat.subspan(parts_[server].begin, parts_[server].floats());
    }
    Status named(std::size_t server, Status status) const {
        return status
                   ? status
                   : fail(Error{status.error()}.in("parameter server " + std::to_string(server)));
    }

    // `flat`: of which the server's part follows the message; empty: nothing does.
    Status send(std::size_t server, const ServerAsk& ask, std::span<float> flat) {
        Status sent = send_message(*servers_[server], ask, kServerOfPair);
        if (sent && !flat.empty()) {
            sent = servers_[server]->send(buffer_of(part_of(server, flat)), kServerOfPair);
        }
        return named(server, std::move(sent));
    }
    // The answer, and the parameters, if they follow, to their place.
    Status receive(std::size_t server, ServerAnswer& answer) {
        Status got = receive_message(*servers_[server], answer, kServerOfPair);
        if (got && answer.training == 0) {
            got =
                servers_[server]->recv(buffer_of(part_of(server, values_.values())), kServerOfPair);
            versions_[server] = answer.version;
        }
        return named(server, std::move(got));
    }
    Status read_server(std::size_t server, Checkpoint& state, std::size_t floats) {
        ServerAsk ask;
        ask.kind = Kind::state;
        ServerAnswer answer;
        Status got = send(server, ask, {});
        if (got) {
            got = receive_message(*servers_[server], answer, kServerOfPair);
        }
        if (got) {
            got =
                servers_[server]->recv(buffer_of(part_of(server, state.parameters)), kServerOfPair);
        }
        std::vector<float> own(moments() * parts_[server].floats());
        if (got) {
            got = servers_[server]->recv(buffer_of(own), kServerOfPair);
        }
        for (std::size_t block = 0; block < moments(); ++block) {
            const std::span<float> whole =
                std::span{state.optimizer}.subspan(block * floats, floats);
            std::copy_n(own.begin() + static_cast<std::ptrdiff_t>(block * parts_[server].floats()),
                        parts_[server].floats(), part_of(server, whole).begin());
        }
        return named(server, std::move(got));
    }
    Status load_server(std::size_t server, Checkpoint& state) {
        ServerAsk ask;
        ask.kind = Kind::load;
        ask.version = state.optimizer_steps >= 0 ? state.optimizer_steps
                                                 : state.step - state.loss_scale.skipped;
        if (const Status sent = send(server, ask, state.parameters); !sent) {
            return sent;
        }
        std::vector<float> own;
        for (std::size_t block = 0; block < moments(); ++block) {
            const std::span<float> mine =
                part_of(server, std::span{state.optimizer}.subspan(block * state.parameters.size(),
                                                                   state.parameters.size()));
            own.insert(own.end(), mine.begin(), mine.end());
        }
        return named(server, servers_[server]->send(buffer_of(own), kServerOfPair));
    }

    TrainConfig config_;
    std::unique_ptr<Communicator> workers_;
    std::unique_ptr<Communicator> alone_;  // this worker and nobody else
    Links servers_;
    std::vector<ServerPart> parts_;
    std::vector<std::int64_t> versions_;  // by server: of the parameters in model_
    at::Device device_;
    std::unique_ptr<Model> model_;
    HostCopy values_;     // what the servers sent
    HostCopy gradients_;  // what they get
    HostCopy buffers_;
    KeptAverages averages_;
    GradientPass pass_;
    bool loaded_ = false;
};

}  // namespace

Result<std::unique_ptr<Strategy>> make_parameter_server(const TrainConfig& config,
                                                        const ModelShape& shape, World& world) {
    const Result<std::vector<std::int64_t>> serving = world.gather(world.server() ? 1 : 0);
    LOCKSTEP_TRY(serving);
    std::vector<std::int32_t> servers;
    std::vector<std::int32_t> workers;
    for (std::int32_t rank = 0; rank < world.size(); ++rank) {
        ((*serving)[static_cast<std::size_t>(rank)] != 0 ? servers : workers).push_back(rank);
    }
    if (servers.empty() || workers.empty()) {
        return fail(Errc::invalid,
                    "strategy parameter_server: " + std::to_string(servers.size()) +
                        " servers and " + std::to_string(workers.size()) +
                        " workers; the job's roles must have a ps and a worker at least");
    }
    if (config.gradient_clip > 0.0 && config.update == TrainUpdate::sync && servers.size() > 1) {
        return fail(Errc::invalid,
                    "strategy parameter_server: with update sync gradient_clip needs one server; "
                    "none of several knows the whole norm");
    }
    std::vector<ServerPart> parts =
        server_parts(flat_layout(parameters_of(model_layers(config, shape))), servers.size());
    // All pairs in one order, so that nobody waits for somebody who waits for him.
    Links mine;
    std::size_t my_server = 0;
    for (std::size_t s = 0; s < servers.size(); ++s) {
        my_server = servers[s] == world.rank() ? s : my_server;
        for (const std::int32_t worker : workers) {
            if (world.rank() != servers[s] && world.rank() != worker) {
                continue;
            }
            Result<std::unique_ptr<Communicator>> pair = world.group(
                "pair-" + std::to_string(s) + "-" + std::to_string(worker), {servers[s], worker});
            LOCKSTEP_TRY(pair);
            mine.push_back(std::move(*pair));
        }
    }
    if (world.server()) {
        return make_server_rank(config, std::move(parts[my_server]), world, std::move(mine));
    }
    Result<std::unique_ptr<Communicator>> group = world.group("workers", workers);
    LOCKSTEP_TRY(group);
    Result<std::unique_ptr<Communicator>> alone = world.group("alone", {world.rank()});
    LOCKSTEP_TRY(alone);
    return std::make_unique<Worker>(config, shape, std::move(parts), std::move(*group),
                                    std::move(*alone), std::move(mine), device_of(world));
}

}  // namespace lockstep
