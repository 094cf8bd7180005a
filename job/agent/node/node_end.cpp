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

void Node::done() {
    wire::Done done;
    done.generation = world_->generation;
    outbox_.event(done);
    wake();
}

// Of the generation before: the daemon has all of it on disk, or there would be no next one. It
// must not speak for ranks that come.
void Node::forget_result() {
    std::error_code ignored;
    std::filesystem::remove(config_.attempt_directory / wire::result_file_name(config_.node_rank),
                            ignored);
    result_saved_ = false;
}

void Node::save_result() {
    const auto path = config_.attempt_directory / wire::result_file_name(config_.node_rank);
    if (auto saved = write_file_atomic(path, wire::encode_result_file(result_), kPostmortemMode);
        !saved) {
        log::error("cannot write the node's result", {{"why", saved.error().message}});
        return;
    }
    result_saved_ = true;
}

void Node::save_last_words(const std::string& reason) const {
    const wire::GaveUpFile words{config_.incarnation, config_.name, reason};
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

void Node::shut_down(std::chrono::milliseconds grace, std::string farewell) {
    stopping_ = true;
    standbys_.end();
    evidence_.stop();
    farewell_ = std::move(farewell);
    next_world_.reset();
    awaiting_.reset();
    if (setup_running_) {
        runner_.terminate_all();  // settle() waits for it
    }
    if (group_.running()) {
        group_.stop(grace);
        return;
    }
    if (phase_ == Phase::ready) {
        phase_ = Phase::waiting;
        ranks_.clear();
        done();
    }
    if (!std::exchange(settling_, true)) {
        tasks_.spawn("settle", settle());
    }
}

// Everything that was accepted from the ranks reaches the daemon before the agent goes, if the
// daemon is there to take it.
Task<void> Node::settle() {
    flush_rows();
    // A surplus copy of the attempt, ended before it was given a world, has nothing to say: what
    // the kept one's ranks did must not go for it.
    std::error_code ignored;
    const bool speaks =
        world_ ||
        !std::filesystem::exists(
            config_.attempt_directory / wire::result_file_name(config_.node_rank), ignored);
    if (!result_saved_ && speaks) {
        save_result();
    }
    if (!farewell_.empty()) {
        wire::Bye bye;
        bye.reason = farewell_;
        outbox_.event(std::move(bye));
    }
    wake();
    const auto until = std::chrono::steady_clock::now() + config_.settle;
    while (!finished_once_ && (!outbox_.settled() || setup_running_) &&
           std::chrono::steady_clock::now() < until) {
        ErrorCode ec;
        settle_timer_.expires_at(until);
        co_await settle_timer_.async_wait(into(ec));
    }
    if (!finished_once_ && !outbox_.settled()) {
        log::warn("leaving with messages that were not acknowledged");
    }
    finish(kAgentDone);
}

void Node::fence(const std::string& why) {
    if (settling_ && !fenced_) {
        // The attempt is over for the daemon too: it takes nothing any more.
        finish(kAgentDone);
        return;
    }
    if (finished_once_ || std::exchange(fenced_, true)) {
        return;
    }
    stopping_ = true;
    log::error("the daemon does not want this agent", {{"why", why}});
    save_last_words(why);
    next_world_.reset();
    standbys_.end();
    group_.stop(std::chrono::milliseconds{0});
    tasks_.spawn("fenced", exit_fenced());
}

Task<void> Node::exit_fenced() {
    const auto until = std::chrono::steady_clock::now() + config_.settle;
    settling_ = true;  // on_all_ended() wakes the timer instead of settling
    while (!finished_once_ && group_.running() && std::chrono::steady_clock::now() < until) {
        ErrorCode ec;
        settle_timer_.expires_at(until);
        co_await settle_timer_.async_wait(into(ec));
    }
    finish(kAgentFenced);
}

void Node::give_up(const std::string& why) {
    log::error("no daemon for too long", {{"result", result_saved_}, {"why", why}});
    save_last_words("no daemon for too long: " + why);
    finish(result_saved_ ? kAgentDone : kAgentLonely);
}

void Node::finish(int code) {
    if (std::exchange(finished_once_, true)) {
        return;
    }
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
    settle_timer_.cancel();
    finished_(code);
    gpus_.reset();  // the last: it waits for a driver that may not answer
}

}  // namespace lockstep
