#include "job/agent/node/node_leaving.hpp"

#include "job/agent/ranks/last_words.hpp"
#include "job/async/sleep.hpp"
#include "job/base/attempt_end.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/wire/wire.hpp"

#include <string>
#include <system_error>
#include <utility>

namespace lockstep {

NodeLeaving::NodeLeaving(TaskGroup& tasks, const NodeConfig& config, const NodeMachine& machine,
                         const Outbox& outbox, std::function<void(NodeInput)> take)
    : tasks_(tasks),
      config_(config),
      machine_(machine),
      outbox_(outbox),
      take_(std::move(take)),
      timer_(tasks.io()) {}

std::filesystem::path NodeLeaving::result_file() const {
    return config_.attempt_directory / wire::result_file_name(config_.node_rank);
}

void NodeLeaving::perform(const node_effect::SaveResult& save) {
    if (auto saved = write_file_atomic(result_file(), wire::encode_result_file(save.result),
                                       kPostmortemMode);
        !saved) {
        log::error("cannot write the node's result", {{"why", saved.error().message}});
        return;
    }
    take_(node_input::ResultSaved{save.result.generation});
}

void NodeLeaving::forget_result() {
    std::error_code ignored;
    std::filesystem::remove(result_file(), ignored);
}

void NodeLeaving::perform(const node_effect::SaveOutcome& save) {
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

void NodeLeaving::perform(const node_effect::LeaveLastWords& leave) {
    log::error("the agent gives up", {{"why", leave.reason}});
    const wire::GaveUpFile words{config_.incarnation, config_.name, leave.reason};
    leave_last_words(config_.attempt_directory, config_.node_rank, words);
}

void NodeLeaving::perform(const node_effect::Leave& leaving) {
    tasks_.spawn("leave", leave(leaving.settle));
}

Task<void> NodeLeaving::leave(bool settle) {
    if (settle) {
        std::error_code ignored;
        take_(node_input::LeavingBegun{std::filesystem::exists(result_file(), ignored)});
    }
    take_(node_input::LeavingLook{outbox_.settled()});
    while (!machine_.finished()) {
        ErrorCode ec;
        timer_.expires_at(machine_.leave_until());
        co_await timer_.async_wait(into(ec));
        take_(node_input::LeavingLook{outbox_.settled()});
    }
}

}  // namespace lockstep
