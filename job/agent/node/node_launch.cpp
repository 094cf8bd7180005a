// Launch node: one process of this node starts its ranks itself. What they say and how they end
// comes to the same places as of ranks that the agent has started.
#include "job/agent/node/node.hpp"
#include "job/agent/ranks/failure_notes.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/misconfiguration.hpp"

#include <utility>

namespace lockstep {

NodeChildren::Handlers Node::child_handlers() {
    NodeChildren::Handlers out;
    out.captured = [this](std::int32_t rank, std::vector<RankReport> reports) {
        on_captured(rank, std::move(reports));
    };
    out.node_log = [this](std::string_view bytes) { group_.append_log(world_->first_rank, bytes); };
    out.changed = [this] { on_children_changed(); };
    out.warn = [this](std::int32_t rank, std::string message) {
        give_warning(rank, std::move(message));
    };
    out.stopping = [this] { return group_.stopping(); };
    out.catch_up = [this] {
        if (!ranks_.empty() && ranks_.front().socket) {
            ranks_.front().socket->drain();
        }
    };
    return out;
}

// Once the launcher runs.
void Node::begin_children(std::int64_t launcher) {
    if (!has_launcher()) {
        return;
    }
    NodeChildren::Setup setup;
    setup.generation = world_->generation;
    setup.first_rank = world_->first_rank;
    setup.count = world_->local_ranks;
    setup.world_size = world_->world_size;
    setup.launcher = launcher;
    setup.node = config_.name;
    setup.logs = config_.attempt_directory;
    setup.mask = mask_;
    if (spec_->capture.preset != "none" || !spec_->capture.loss.empty()) {
        setup.capture = std::pair{spec_->capture.preset, spec_->capture.loss};
    }
    launcher_notes_.clear();
    launcher_words_ = {};
    children_.begin(std::move(setup));
}

void Node::on_children_changed() {
    take(node_input::RanksChanged{children_.started()});
    tell_gpu_watch();
}

// Whose message came over a socket that all ranks of this node share; null: nobody knows.
Node::RankState* Node::speaker_of(RankState& rank, std::uint64_t connection) {
    if (!has_launcher() || !rank.socket) {
        return &rank;
    }
    const auto number = children_.rank_of(rank.socket->peer(connection));
    return number ? state_of(*number) : nullptr;
}

Node::RankState& Node::socket_holder(RankState& rank) {
    return has_launcher() ? ranks_.front() : rank;
}

void Node::accept(RankState& rank, std::uint64_t connection, const RankHello& hello) {
    bool known = true;
    std::int32_t number = rank.rank;
    if (has_launcher()) {
        ReportSocket& socket = *rank.socket;
        const std::int64_t pid = socket.peer(connection);
        known = children_.hello(pid, hello.identity, socket.take_descriptor());
        number = known ? children_.rank_of(pid).value_or(-1) : -1;
    }
    check_world(number, hello.identity.world_size);
    if (hello.id && rank.socket) {
        rank.socket->answer(connection, encode_hello_answer(*hello.id, known));
    }
}

// Servers and workers may meet by themselves.
void Node::check_world(std::int32_t rank, std::int32_t world_size) {
    if (!spec_->roles.empty()) {
        return;
    }
    if (auto wrong = wrong_world(world_size, world_->world_size)) {
        give_warning(rank, std::move(*wrong));
    }
}

void Node::on_unnamed(std::uint64_t connection) {
    const std::int64_t pid = ranks_.front().socket->peer(connection);
    give_warning(-1, "a process of " + config_.name +
                         " reports and does not say which rank it is: call lockstep.report() in a "
                         "process that has RANK or has joined its process group");
    log::debug("a report of nobody knows whom", {{"pid", pid}});
}

void Node::on_launcher_exited(const wire::Exited& exited) {
    flush_rows();
    for (NodeChildren::Ended& one : children_.ends(exited)) {
        judge_child(one);
        mask_end(one.exited);
        take(node_input::RankExited{std::move(one.exited)});
    }
}

// Why a rank failed: by what its own processes have told and printed. Of a launcher by all that is
// known of no rank.
void Node::judge_child(NodeChildren::Ended& ended) {
    if (ended.exited.exit_code == 0) {
        return;
    }
    RankGroup::LastWords words;
    std::vector<ExceptionNote> notes;
    RankState* state = state_of(ended.exited.rank);
    if (ended.exited.launcher || state == nullptr) {
        words = launcher_words_;
        notes = launcher_notes_;
    } else {
        words.pid = ended.pid;
        words.output = std::move(ended.output);
        notes = std::exchange(state->notes, {});
    }
    judge_exit(ended.exited, words, std::move(notes), known_clock_offset());
}

void Node::accept_unknown(ExceptionNote note) {
    if (launcher_notes_.size() < limits::kExceptionNotes) {
        launcher_notes_.push_back(std::move(note));
    }
}

// Programs that were copied without their share folder run every job, and then name the wrong rank.
void Node::warn_of_missing_hooks() {
    const auto wanted = spec_->environment.find(std::string{kPythonHooks});
    const bool off = wanted != spec_->environment.end() && wanted->second == "off";
    if (config_.missing_hooks.empty() || spec_->framework == Framework::native || off) {
        return;
    }
    log::warn("Lockstep's Python hooks are missing", {{"looked_for", config_.missing_hooks}});
    give_warning(-1, "Lockstep's Python hooks are not installed with its agent (" +
                         config_.missing_hooks +
                         " is missing): exceptions of Python ranks, the stacks of a hang and the "
                         "ranks of torchrun or mp.spawn are not seen, so the wrong rank may be "
                         "named as the cause of a failure");
}

void Node::give_warning(std::int32_t rank, std::string message) {
    take(node_input::WarningSeen{rank, masked(std::move(message))});
}

}  // namespace lockstep
