#include "daemon/control/jobs/signature_use.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/store/event_records.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

Task<std::string> signature_of(ControlContext& context, JobId job) {
    if (context.scheduler.signatures() == nullptr) {
        co_return std::string{};
    }
    const std::function<Result<std::vector<Event>>(Database&)> read = [job](Database& db) {
        return EventRecords{db}.of_job(job, 0, 1);
    };
    const auto first = co_await context.store.read<std::vector<Event>>(read);
    const auto* submitted =
        first && !first->empty() ? std::get_if<event::Submitted>(&first->front().data) : nullptr;
    co_return submitted != nullptr ? submitted->signature : std::string{};
}

void forget_unused_signature(const ControlContext& context, const JobRegistry& registry,
                             const std::string& user, const std::string& name) {
    Signatures* const signatures = context.scheduler.signatures();
    if (signatures == nullptr || name.empty()) {
        return;
    }
    const auto& jobs = registry.unfinished();
    if (std::any_of(jobs.begin(), jobs.end(), [&](const auto& one) {
            return one.second->job().signature == name && one.second->job().user == user;
        })) {
        return;
    }
    if (const Status done = signatures->forget(user, name); !done) {
        log::warn("a signature stays", {{"what", done.error().message}});
    }
}

}  // namespace lockstep
