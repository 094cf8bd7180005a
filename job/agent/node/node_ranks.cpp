// size: what ranks need, say and leave, a small function each
// The ranks' side of a node: what they need before they start, what they report, how they end.
#include "job/agent/diagnostics/nccl_conf.hpp"
#include "job/agent/node/node.hpp"
#include "job/base/clock.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/launch/framework_env.hpp"
#include "job/model/state.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace lockstep {
namespace {

std::string numbered(const char* format, std::int32_t number) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), format, number);
    return text.data();
}

RankReport single(std::string_view column, double value) {
    RankReport report;
    report.time = wall_seconds();
    report.metrics.emplace_back(column, value);
    return report;
}

}  // namespace

RankPlace Node::place_of(std::int32_t local_rank) const {
    RankPlace place;
    place.job_id = welcome_->job_id;
    place.attempt = welcome_->attempt;
    place.generation = world_->generation;
    place.rank = world_->first_rank + local_rank;
    place.local_rank = local_rank;
    place.node_rank = world_->node_rank;
    place.world_size = world_->world_size;
    place.local_world_size = world_->local_ranks;
    place.nodes = std::max(world_->nodes, static_cast<std::int32_t>(world_->hosts.size()));
    place.master_addr = world_->master_address;
    place.master_port = world_->master_port;
    place.hosts = world_->hosts;
    for (std::size_t rank = 0; rank < world_->ports.size(); ++rank) {
        const std::size_t node = rank / static_cast<std::size_t>(world_->local_ranks);
        place.endpoints.push_back(host_and_port(world_->addresses.at(node), world_->ports[rank]));
    }
    place.address = address_;
    place.socket_path = sockets_.socket_path(local_rank);
    place.error_file =
        (config_.attempt_directory / numbered("rank-%05d.error.json", place.rank)).string();
    place.attempt_directory = config_.attempt_directory.string();
    place.checkpoint_directory = welcome_->checkpoint_directory;
    place.train_config_file =
        (config_.attempt_directory / numbered("train-%05d.json", config_.node_rank)).string();
    place.agent_program = config_.agent_program;
    place.python_path = config_.python_path;
    place.ras_port = ras_port_ ? ras_port_->number() : 0;
    return place;
}

// The folders and files the ranks count on; the working directory.
Result<std::string> Node::prepare_folders() {
    std::string directory = config_.attempt_directory.string();
    if (!spec_->working_directory.empty()) {
        directory = (config_.attempt_directory / spec_->working_directory).string();
        struct stat info {};
        if (::stat(directory.c_str(), &info) != 0) {
            return fail(Errc::not_found, (errno == ENOENT || errno == ENOTDIR
                                              ? "working directory does not exist: "
                                              : "working directory cannot be used: ") +
                                             printable(directory));
        }
        if (!S_ISDIR(info.st_mode) || ::access(directory.c_str(), X_OK) != 0) {
            return fail(Errc::denied,
                        "working directory cannot be entered: " + printable(directory));
        }
    }
    if (!welcome_->checkpoint_directory.empty()) {
        if (auto made = make_private_directories(welcome_->checkpoint_directory); !made) {
            return fail(made.error().in("checkpoint directory"));
        }
    }
    if (spec_->framework == Framework::native && spec_->train) {
        const auto written = write_file_atomic(place_of(0).train_config_file,
                                               dump_json_pretty(to_json(*spec_->train)) + "\n");
        if (!written) {
            return fail(written.error().in("train configuration"));
        }
    }
    return directory;
}

Result<RankGroup::RankPlan> Node::plan_of(std::int32_t local_rank, const std::string& directory,
                                          std::map<std::string, std::string> inherited) const {
    const RankPlace place = place_of(local_rank);
    RankGroup::RankPlan plan;
    plan.rank = place.rank;
    plan.log = config_.attempt_directory / wire::rank_log_name(place.rank);
    plan.mask = mask_;
    plan.process.agent_program = config_.agent_program;
    plan.process.directory = directory;
    plan.process.argv = rank_command(*spec_, place, config_.train_program);
    // Gloo listens on what this machine's name resolves to, and a node's name need not resolve;
    // the interface of the address that reached the daemon is known to work.
    if (const auto name = interface_of(address_); !name.empty()) {
        inherited.try_emplace("GLOO_SOCKET_IFNAME", name);
        // NCCL takes a name for a prefix unless = stands before it. A site that has chosen an
        // interface in NCCL's own files is not overruled: variables would go before these.
        auto all = spec_->environment;  // the job's own go before what is inherited
        all.insert(inherited.begin(), inherited.end());
        if (!nccl_conf_names("NCCL_SOCKET_IFNAME", all)) {
            inherited.try_emplace("NCCL_SOCKET_IFNAME", "=" + name);
        }
    }
    add_secrets(inherited);
    plan.process.environment = rank_environment(*spec_, place, inherited);
    const auto path = plan.process.environment.find("PATH");
    const std::string search =
        path == plan.process.environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
    if (plan.process.argv.empty()) {
        return fail(Errc::invalid, "the command is empty");
    }
    auto program = find_program(plan.process.argv.front(), search, directory);
    if (!program) {
        return fail(program.error());
    }
    plan.process.program = std::move(*program);
    plan.launcher = has_launcher();
    // The native trainer reports every step; its lines are for people.
    if (spec_->framework != Framework::native && !plan.launcher &&
        (spec_->capture.preset != "none" || !spec_->capture.loss.empty())) {
        plan.capture.emplace(spec_->capture.preset, spec_->capture.loss);
        plan.world_size = world_->world_size;
    }
    return plan;
}

Status Node::listen_for(std::int32_t local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    ReportSocket::Handlers handlers;
    handlers.message = [this, index](std::uint64_t connection, std::string_view bytes) {
        on_rank_message(ranks_[index], connection, bytes);
    };
    handlers.too_large = [this, index](std::uint64_t connection, std::size_t size,
                                       std::string_view head) {
        on_large_message(ranks_[index], connection, size, head);
    };
    auto socket =
        ReportSocket::listen(tasks_, sockets_.socket_path(local_rank), std::move(handlers));
    if (!socket) {
        return fail(socket.error());
    }
    ranks_[index].socket = std::move(*socket);
    return {};
}

// Everything that can be wrong is found here, before any rank starts anywhere.
Status Node::prepare_ranks() {
    if (auto good = check_endpoints(); !good) {
        return good;
    }
    if (!setup_problem_.empty()) {
        return fail(Errc::invalid, setup_problem_);
    }
    const auto directory = prepare_folders();
    if (!directory) {
        return fail(directory.error());
    }
    directory_ = *directory;
    if (auto open = open_gate(); !open) {
        return open;
    }
    plans_.clear();
    ranks_.clear();
    ranks_.resize(static_cast<std::size_t>(world_->local_ranks));
    for (std::size_t local = 0; local < ranks_.size(); ++local) {
        ranks_[local].rank = world_->first_rank + static_cast<std::int32_t>(local);
    }
    const std::int32_t started = has_launcher() ? 1 : world_->local_ranks;
    for (std::int32_t local = 0; local < started; ++local) {
        auto plan = plan_of(local, *directory, base_);
        if (!plan) {
            return fail(plan.error());
        }
        std::error_code ignored;  // of an earlier generation, if there was one
        std::filesystem::remove(place_of(local).error_file, ignored);
        plans_.push_back(std::move(*plan));
        if (auto listening = listen_for(local); !listening) {
            return listening;
        }
    }
    bind_ranks();
    return open_store();
}

void Node::perform(const node_effect::StartRanks&) {
    release_ports();
    warn_of_missing_hooks();
    if (spec_->launch == Launch::task) {
        expect_tasks();
        return;
    }
    std::vector<SpawnRequest> requests;
    if (!spec_->recovery.warm_standby.empty()) {
        for (const RankGroup::RankPlan& plan : plans_) {
            requests.push_back(plan.process);
        }
    }
    auto started = group_.start(world_->generation, std::exchange(plans_, {}));
    if (!started) {
        take(node_input::RanksNotStarted{CauseClass::user_error, masked(started.error().message),
                                         group_.running()});
        return;
    }
    take(node_input::RanksStarted{*started});
    begin_children(started->front().pid);
    begin_standbys(std::move(requests), *started);
}

// Once the ranks run, for the generation that may follow.
void Node::begin_standbys(std::vector<SpawnRequest> requests,
                          const std::vector<wire::StartedRank>& started) {
    std::vector<Standbys::Rank> ranks;
    for (std::size_t local = 0; local < requests.size(); ++local) {
        ranks.push_back({std::move(requests[local]), started[local].pid});
    }
    standbys_.begin(spec_->recovery.warm_standby, std::move(ranks), mask_);
}

Node::RankState* Node::state_of(std::int32_t rank) {
    if (!world_ || rank < world_->first_rank) {
        return nullptr;
    }
    const auto index = static_cast<std::size_t>(rank - world_->first_rank);
    return index < ranks_.size() ? &ranks_[index] : nullptr;
}

void Node::on_rank_message(RankState& rank, std::uint64_t connection, std::string_view bytes) {
    auto message = parse_rank_message(bytes, wall_seconds());
    if (!message) {
        if (message.error().id && rank.socket) {
            rank.socket->answer(connection, encode_rank_refusal(*message.error().id, "invalid",
                                                                message.error().reason));
        }
        on_bad_message(rank, message.error().reason);
        return;
    }
    if (const auto* hello = std::get_if<RankHello>(&*message)) {
        accept(rank, connection, *hello);
        return;
    }
    RankState* speaker = speaker_of(rank, connection);
    const bool asks = std::holds_alternative<RankKeyRequest>(*message);
    if (speaker == nullptr && !asks) {
        if (auto* note = std::get_if<ExceptionNote>(&*message)) {
            accept_unknown(std::move(*note));
        } else {
            on_unnamed(connection);
        }
        return;
    }
    std::visit(
        [&](auto& m) {
            using Kind = std::decay_t<decltype(m)>;
            if constexpr (std::is_same_v<Kind, RankKeyRequest>) {
                accept(speaker == nullptr ? rank : *speaker, connection, m);
            } else if constexpr (!std::is_same_v<Kind, RankHello>) {
                accept(*speaker, std::move(m));
            }
        },
        *message);
}

// It cannot be parsed, but whoever waits for an answer is not left waiting.
void Node::on_large_message(RankState& rank, std::uint64_t connection, std::size_t size,
                            std::string_view head) {
    const std::string reason =
        "a message of " + std::to_string(size) +
        " bytes is too large: " + std::to_string(ReportSocket::kMessageBytes) +
        " at most, and a value of a key has at most " + std::to_string(limits::kValueBytes);
    head = head.substr(0, 4096);
    const bool is_report = head.find(R"("op":"report")") != std::string_view::npos ||
                           head.find(R"("op": "report")") != std::string_view::npos;
    if (rank.socket && !is_report) {
        rank.socket->answer(connection, encode_rank_refusal(std::nullopt, "invalid", reason));
    }
    on_bad_message(rank, reason);
}

void Node::on_bad_message(RankState& rank, const std::string& reason) {
    ++bad_reports_;
    if (++rank.bad == 1) {
        log::warn("a report was refused; further ones of this rank are only counted",
                  {{"rank", rank.rank}, {"reason", reason}});
    }
}

void Node::accept(RankState& rank, RankReport report) {
    rank.reports_loss = rank.reports_loss || report.has_loss;
    if (rank.bad != rank.bad_told) {
        rank.bad_told = rank.bad;
        report.metrics.emplace_back("bad_reports", static_cast<double>(rank.bad));
    }
    add_row(rank.rank, report);
}

void Node::accept(RankState& rank, const RankCheckpoint& checkpoint) {
    wire::CheckpointSaved saved;
    saved.generation = world_->generation;
    saved.rank = rank.rank;
    saved.step = checkpoint.step;
    saved.path = checkpoint.path;
    saved.time = SystemClock{}.wall();
    outbox_.event(std::move(saved));
    wake();
}

void Node::accept(RankState& rank, const RankPhase& phase) {
    add_row(rank.rank, single("phase_code", phase.code));
}

void Node::accept(RankState& rank, std::uint64_t connection, const RankKeyRequest& request) {
    KvProxy::Origin origin;
    origin.rank = rank.rank;
    origin.connection = connection;
    origin.id = request.id;
    origin.op = request.request.op;
    origin.deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds{request.request.timeout_ms};
    auto asked = keys_.ask(origin, request.request);
    if (asked.answer) {
        answer(origin, *asked.answer);
    }
    // Without a connection it stays with the broker, which sends it after the next WELCOME.
    if (asked.send && machine_.connected()) {
        outbox_.control(*asked.send);
        wake();
    }
}

void Node::on(const wire::KeyReply& reply) {
    const auto answered = keys_.answered(reply, std::chrono::steady_clock::now());
    for (const auto& origin : answered.origins) {
        answer(origin, reply);
    }
    if (answered.again) {
        outbox_.control(*answered.again);
        wake();
    }
}

void Node::answer(const KvProxy::Origin& origin, const wire::KeyReply& reply) {
    RankState* rank = state_of(origin.rank);
    if (rank != nullptr && socket_holder(*rank).socket) {
        socket_holder(*rank).socket->answer(
            origin.connection, encode_rank_answer(origin.id, origin.op, reply),
            encode_rank_refusal(origin.id, to_string(Errc::exhausted),
                                "the answer is larger than a socket's buffer on this node "
                                "(net.core.wmem_max)"));
    }
}

void Node::on_captured(std::int32_t rank, std::vector<RankReport> reports) {
    const RankState* state = state_of(rank);
    if (state == nullptr || state->reports_loss) {
        return;
    }
    for (const auto& report : reports) {
        add_row(rank, report);
    }
}

void Node::add_row(std::int32_t rank, const RankReport& report) {
    if (telemetry_.full()) {
        flush_rows();
    }
    if (report.step >= 0) {
        standbys_.stepped(rank - world_->first_rank);
    }
    telemetry_.add(rank, report);
}

void Node::on_rank_ending(std::int32_t rank) {
    standbys_.ended(rank - world_->first_rank);
    RankState* state = state_of(rank);
    if (state == nullptr || !state->socket) {
        return;
    }
    state->socket->drain();
    state->socket->close();
    if (has_launcher()) {
        children_.finish();
    }
    if (state->bad != state->bad_told) {
        state->bad_told = state->bad;
        add_row(rank, single("bad_reports", static_cast<double>(state->bad)));
    }
}

void Node::on_rank_exited(wire::Exited exited) {
    if (has_launcher()) {
        on_launcher_exited(exited);
        wake();
        return;
    }
    flush_rows();
    mask_end(exited);
    take(node_input::RankExited{std::move(exited)});
}

}  // namespace lockstep
