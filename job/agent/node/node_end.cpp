// How a node ends: what its ranks did is written down and delivered, then the agent goes.
#include "job/agent/node/node.hpp"
#include "job/agent/ranks/failure_notes.hpp"
#include "job/agent/ranks/last_words.hpp"
#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <cstdlib>
#include <utility>

namespace lockstep {

// Of the generation before: the daemon has all of it on disk, or there would be no next one. It
// must not speak for ranks that come.
void Node::forget_result() {
    std::error_code ignored;
    std::filesystem::remove(config_.attempt_directory / wire::result_file_name(config_.node_rank),
                            ignored);
}

void Node::perform(const node_effect::SaveResult& save) {
    const auto path = config_.attempt_directory / wire::result_file_name(config_.node_rank);
    if (auto saved =
            write_file_atomic(path, wire::encode_result_file(save.result), kPostmortemMode);
        !saved) {
        log::error("cannot write the node's result", {{"why", saved.error().message}});
        return;
    }
    take(node_input::ResultSaved{});
}

void Node::perform(const node_effect::LeaveLastWords& leave) {
    log::error("the agent gives up", {{"why", leave.reason}});
    const wire::GaveUpFile words{config_.incarnation, config_.name, leave.reason};
    leave_last_words(config_.attempt_directory, config_.node_rank, words);
}

void Node::accept(RankState& rank, ExceptionNote note) {
    if (rank.notes.size() >= limits::kExceptionNotes) {
        rank.notes.erase(rank.notes.begin());
    }
    rank.notes.push_back(std::move(note));
}

void Node::judge(wire::Exited& exited, const RankGroup::LastWords& words) {
    if (has_launcher()) {
        launcher_words_ = words;  // judged with its ranks
        return;
    }
    RankState* state = state_of(exited.rank);
    std::vector<ExceptionNote> notes;
    if (state != nullptr) {
        notes = std::exchange(state->notes, {});
        auto recorded =
            read_error_file(place_of(exited.rank - world_->first_rank).error_file, words.pid);
        if (recorded) {  // what the hooks have told is told better
            notes.insert(notes.begin(), std::move(*recorded));
        }
    }
    judge_exit(exited, words, std::move(notes), known_clock_offset());
}

// In milliseconds; 0: it is not beyond doubt that there is any.
std::int64_t Node::known_clock_offset() const {
    const auto clock = clock_offset_.estimate();
    const bool known = clock && std::abs(clock->offset_us) > clock->error_us;
    return known ? clock->offset_us / 1000 : 0;
}

void Node::perform(const node_effect::EndSetup&) {
    runner_.terminate_all();
}

void Node::perform(const node_effect::Leave& leaving) {
    tasks_.spawn("leave", leave(leaving.settle));
}

void Node::perform(const node_effect::LookAtLeaving&) {
    leave_timer_.cancel();
}

Task<void> Node::leave(bool settle) {
    if (settle) {
        std::error_code ignored;
        take(node_input::LeavingBegun{std::filesystem::exists(
            config_.attempt_directory / wire::result_file_name(config_.node_rank), ignored)});
    }
    take(node_input::LeavingLook{outbox_.settled()});
    while (!machine_.finished()) {
        ErrorCode ec;
        leave_timer_.expires_at(machine_.leave_until());
        co_await leave_timer_.async_wait(into(ec));
        take(node_input::LeavingLook{outbox_.settled()});
    }
}

void Node::perform(const node_effect::Exit& exit) {
    children_.close();
    standbys_.close();
    ranks_.clear();
    gate_.reset();
    store_.reset();
    rendezvous_.reset();
    runner_.kill_all();
    evidence_.stop();
    preflight_.stop();
    tick_timer_.cancel();
    leave_timer_.cancel();
    finished_(exit.code);
    gpus_.reset();  // the last: it waits for a driver that may not answer
}

}  // namespace lockstep
