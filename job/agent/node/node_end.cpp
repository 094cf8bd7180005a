// How a node ends: what its ranks did is written down and delivered, then the agent goes.
#include "job/agent/node/node.hpp"
#include "job/agent/ranks/last_words.hpp"
#include "job/async/sleep.hpp"
#include "job/base/attempt_end.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <cstdlib>
#include <utility>

namespace lockstep {

void Node::perform(const node_effect::SaveResult& save) {
    const auto path = config_.attempt_directory / wire::result_file_name(config_.node_rank);
    if (auto saved =
            write_file_atomic(path, wire::encode_result_file(save.result), kPostmortemMode);
        !saved) {
        log::error("cannot write the node's result", {{"why", saved.error().message}});
        return;
    }
    take(node_input::ResultSaved{save.result.generation});
}

void Node::perform(const node_effect::SaveOutcome& save) {
    const auto path = config_.attempt_directory / kOutcomeFileName;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) {
        return;  // another node's agent was quicker; they all say the same
    }
    const auto saved = write_file_atomic(
        path, std::string{to_string(save.outcome)} + " " + config_.allocation + "\n",
        kPostmortemMode);
    if (!saved) {
        log::warn("cannot say what the attempt has come to", {{"why", saved.error().message}});
    }
}

void Node::perform(const node_effect::LeaveLastWords& leave) {
    log::error("the agent gives up", {{"why", leave.reason}});
    const wire::GaveUpFile words{config_.incarnation, config_.name, leave.reason};
    leave_last_words(config_.attempt_directory, config_.node_rank, words);
}

void Node::perform(const node_effect::EndSetup&) {
    environment_.terminate();
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
    ranks_.close();
    environment_.kill();
    evidence_.stop();
    profiles_.stop();
    nccl_.stop();
    preflight_.stop();
    tick_timer_.cancel();
    leave_timer_.cancel();
    finished_(exit.code);
    gpus_.close();  // the last: it waits for a driver that may not answer
}

}  // namespace lockstep
