#include "job/agent/node/rank_reports.hpp"

#include "job/base/clock.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/spec/misconfiguration.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

RankReport single(std::string_view column, double value) {
    RankReport report;
    report.time = wall_seconds();
    report.metrics.emplace_back(column, value);
    return report;
}

}  // namespace

RankReports::RankReports(TaskGroup& tasks, const NodeConfig& config, Parts parts, Handlers handlers)
    : tasks_(tasks),
      config_(config),
      parts_(parts),
      handlers_(std::move(handlers)),
      telemetry_(config.node_rank),
      flush_timer_(tasks.io()) {}

void RankReports::ask_keys_again(bool lost) {
    for (const auto& request : keys_.after_reconnect(lost, std::chrono::steady_clock::now())) {
        parts_.outbox.control(request);
    }
}

void RankReports::start_generation(std::int32_t generation) {
    flush();
    telemetry_.set_generation(generation);
    keys_.start_generation(generation);
}

void RankReports::expect(const wire::World& world, bool one_world, bool launcher) {
    Generation next;
    next.number = world.generation;
    next.first_rank = world.first_rank;
    next.world_size = world.world_size;
    next.one_world = one_world;
    next.launcher = launcher;
    next.ranks.resize(static_cast<std::size_t>(world.local_ranks));
    for (std::size_t local = 0; local < next.ranks.size(); ++local) {
        next.ranks[local].rank = world.first_rank + static_cast<std::int32_t>(local);
    }
    here_ = std::move(next);
    only_prints_.resize(std::max(only_prints_.size(), here_.ranks.size()));
}

Status RankReports::listen(std::int32_t local_rank, const std::string& path) {
    const auto index = static_cast<std::size_t>(local_rank);
    ReportSocket::Handlers handlers;
    handlers.message = [this, index](std::uint64_t connection, std::string_view bytes) {
        on_message(here_.ranks[index], connection, bytes);
    };
    handlers.too_large = [this, index](std::uint64_t connection, std::size_t size,
                                       std::string_view head) {
        on_large_message(here_.ranks[index], connection, size, head);
    };
    auto socket = ReportSocket::listen(tasks_, path, std::move(handlers));
    LOCKSTEP_TRY(socket);
    here_.ranks[index].socket = std::move(*socket);
    return {};
}

void RankReports::catch_up() {
    if (!here_.ranks.empty() && here_.ranks.front().socket) {
        here_.ranks.front().socket->drain();
    }
}

void RankReports::close() {
    here_.ranks.clear();
}

RankReports::Rank* RankReports::find(std::int32_t rank) {
    if (here_.number == 0 || rank < here_.first_rank) {
        return nullptr;
    }
    const auto index = static_cast<std::size_t>(rank - here_.first_rank);
    return index < here_.ranks.size() ? &here_.ranks[index] : nullptr;
}

// Whose message came over a socket that all ranks of this node share; null: nobody knows.
RankReports::Rank* RankReports::speaker_of(Rank& rank, std::uint64_t connection) {
    if (!here_.launcher || !rank.socket) {
        return &rank;
    }
    const auto number = parts_.children.rank_of(rank.socket->peer(connection));
    return number ? find(*number) : nullptr;
}

void RankReports::on_message(Rank& rank, std::uint64_t connection, std::string_view bytes) {
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
    Rank* speaker = speaker_of(rank, connection);
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
void RankReports::on_large_message(Rank& rank, std::uint64_t connection, std::size_t size,
                                   std::string_view head) {
    const std::string reason = "a message of " + std::to_string(size) +
                               " bytes is too large: " + std::to_string(limits::kRankMessageBytes) +
                               " at most, and a value of a key has at most " +
                               std::to_string(limits::kValueBytes);
    head = head.substr(0, 4096);
    const bool is_report = head.find(R"("op":"report")") != std::string_view::npos ||
                           head.find(R"("op": "report")") != std::string_view::npos;
    if (rank.socket && !is_report) {
        rank.socket->answer(connection, encode_rank_refusal(std::nullopt, "invalid", reason));
    }
    on_bad_message(rank, reason);
}

void RankReports::on_bad_message(Rank& rank, const std::string& reason) {
    ++bad_;
    if (++rank.bad == 1) {
        log::warn("a report was refused; further ones of this rank are only counted",
                  {{"rank", rank.rank}, {"reason", reason}});
    }
}

void RankReports::accept(Rank& rank, std::uint64_t connection, const RankHello& hello) {
    bool known = true;
    std::int32_t number = rank.rank;
    if (here_.launcher) {
        ReportSocket& socket = *rank.socket;
        const std::int64_t pid = socket.peer(connection);
        known = parts_.children.hello(pid, hello.identity, socket.take_descriptor());
        number = known ? parts_.children.rank_of(pid).value_or(-1) : -1;
    }
    check_world(number, hello.identity.world_size);
    if (hello.id && rank.socket) {
        rank.socket->answer(connection, encode_hello_answer(*hello.id, known));
    }
}

// Servers and workers may meet by themselves.
void RankReports::check_world(std::int32_t rank, std::int32_t world_size) {
    if (!here_.one_world) {
        return;
    }
    if (auto wrong = wrong_world(world_size, here_.world_size)) {
        handlers_.warn(rank, std::move(*wrong));
    }
}

void RankReports::on_unnamed(std::uint64_t connection) {
    const std::int64_t pid = here_.ranks.front().socket->peer(connection);
    handlers_.warn(-1,
                   "a process of " + config_.name +
                       " reports and does not say which rank it is: call lockstep.report() in a "
                       "process that has RANK or has joined its process group");
    log::debug("a report of nobody knows whom", {{"pid", pid}});
}

void RankReports::accept_unknown(ExceptionNote note) {
    if (here_.launcher_notes.size() < limits::kExceptionNotes) {
        here_.launcher_notes.push_back(std::move(note));
    }
}

void RankReports::accept(Rank& rank, RankReport report) {
    rank.reports_loss = rank.reports_loss || report.has_loss;
    if (rank.reports_loss) {
        rank.printed.clear();
    }
    rank.timer.time(report);
    if (rank.bad != rank.bad_told) {
        rank.bad_told = rank.bad;
        report.metrics.emplace_back("bad_reports", static_cast<double>(rank.bad));
    }
    add_row(rank.rank, report);
}

void RankReports::accept(Rank& rank, const RankCheckpoint& checkpoint) {
    rank.timer.pause();
    wire::CheckpointSaved saved;
    saved.generation = here_.number;
    saved.rank = rank.rank;
    saved.step = checkpoint.step;
    saved.path = checkpoint.path;
    saved.time = SystemClock{}.wall();
    parts_.outbox.event(std::move(saved));
    handlers_.wake();
}

void RankReports::accept(Rank& rank, const RankPhase& phase) {
    rank.timer.pause();
    add_row(rank.rank, single("phase_code", phase.code));
}

void RankReports::accept(Rank& rank, ExceptionNote note) {
    if (rank.notes.size() >= limits::kExceptionNotes) {
        rank.notes.erase(rank.notes.begin());
    }
    rank.notes.push_back(std::move(note));
}

void RankReports::accept(Rank& rank, std::uint64_t connection, const RankKeyRequest& request) {
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
    if (asked.send && handlers_.connected()) {
        parts_.outbox.control(*asked.send);
        handlers_.wake();
    }
}

void RankReports::answered(const wire::KeyReply& reply) {
    const auto result = keys_.answered(reply, std::chrono::steady_clock::now());
    for (const auto& origin : result.origins) {
        answer(origin, reply);
    }
    if (result.again) {
        parts_.outbox.control(*result.again);
        handlers_.wake();
    }
}

void RankReports::answer(const KvProxy::Origin& origin, const wire::KeyReply& reply) {
    Rank* rank = find(origin.rank);
    if (rank != nullptr && socket_holder(*rank).socket) {
        socket_holder(*rank).socket->answer(
            origin.connection, encode_rank_answer(origin.id, origin.op, reply),
            encode_rank_refusal(origin.id, to_string(Errc::exhausted),
                                "the answer is larger than a socket's buffer on this node "
                                "(net.core.wmem_max)"));
    }
}

void RankReports::captured(std::int32_t rank, const std::vector<RankReport>& reports) {
    Rank* const state = find(rank);
    if (state == nullptr || state->reports_loss) {
        return;
    }
    if (!only_prints_[static_cast<std::size_t>(rank - here_.first_rank)] &&
        state->printed.size() + reports.size() <= limits::kPrintedRows) {
        if (state->printed.empty()) {
            state->printed_since = std::chrono::steady_clock::now();
        }
        state->printed.insert(state->printed.end(), reports.begin(), reports.end());
        return;
    }
    let_go_of_printed(*state);
    for (const auto& report : reports) {
        add_row(rank, report);
    }
}

void RankReports::let_go_of_printed(Rank& rank) {
    for (const auto& report : std::exchange(rank.printed, {})) {
        add_row(rank.rank, report);
    }
}

void RankReports::add_row(std::int32_t rank, const RankReport& report) {
    if (report.step >= 0) {
        parts_.standbys.stepped(rank - here_.first_rank);
        if (Rank* const known = find(rank)) {
            known->step = std::max(known->step, report.step);
        }
    }
    keep_row(rank, report);
}

void RankReports::keep_row(std::int32_t rank, const RankReport& report) {
    if (telemetry_.full()) {
        flush();
    }
    telemetry_.add(rank, report);
    if (!flush_waits_ && !stopped_) {
        flush_waits_ = true;
        flush_timer_.expires_at(pace_.due(std::chrono::steady_clock::now()));
        tasks_.spawn("flush of reports", flush_later());
    }
}

Task<void> RankReports::flush_later() {
    ErrorCode ec;
    co_await flush_timer_.async_wait(into(ec));
    flush_waits_ = false;
    if (!stopped_) {
        flush();
    }
}

void RankReports::ending(std::int32_t rank) {
    parts_.standbys.ended(rank - here_.first_rank);
    Rank* state = find(rank);
    if (state == nullptr) {
        return;
    }
    if (state->socket) {
        state->socket->drain();
    }
    let_go_of_printed(*state);
    if (!state->socket) {
        return;
    }
    state->socket->close();
    if (here_.launcher) {
        parts_.children.finish();
        std::for_each(here_.ranks.begin(), here_.ranks.end(),
                      [this](Rank& one) { let_go_of_printed(one); });
    }
    if (state->bad != state->bad_told) {
        state->bad_told = state->bad;
        add_row(rank, single("bad_reports", static_cast<double>(state->bad)));
    }
}

std::vector<ExceptionNote> RankReports::take_notes(std::int32_t rank) {
    Rank* const found = find(rank);
    return found == nullptr ? std::vector<ExceptionNote>{} : std::exchange(found->notes, {});
}

std::int64_t RankReports::last_step(std::int32_t rank) const {
    const auto local = static_cast<std::int64_t>(rank) - here_.first_rank;
    return local < 0 || local >= std::ssize(here_.ranks)
               ? -1
               : here_.ranks[static_cast<std::size_t>(local)].step;
}

void RankReports::look() {
    const auto now = std::chrono::steady_clock::now();
    for (std::size_t local = 0; local < here_.ranks.size(); ++local) {
        Rank& rank = here_.ranks[local];
        if (!rank.printed.empty() && now - rank.printed_since >= limits::kReportFollows) {
            only_prints_[local] = true;
            let_go_of_printed(rank);
        }
    }
}

void RankReports::flush() {
    look();
    while (const auto batch = telemetry_.take()) {
        pace_.flushed(std::chrono::steady_clock::now());
        parts_.outbox.batch(*batch);
        handlers_.wake();
    }
}

}  // namespace lockstep
