#include "daemon/control/jobs/ticket_gate.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/base/attempt_files.hpp"
#include "job/async/on_thread.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <functional>
#include <vector>

namespace lockstep {

Result<std::shared_ptr<AgentSession>> TicketGate::open(const std::string& ticket_sha256,
                                                       std::shared_ptr<AgentPeer> peer,
                                                       std::string remote) {
    forget_retired();
    const auto found = tickets_.find(ticket_sha256);
    if (found == tickets_.end() || closed_) {
        return fail(closed_ ? Errc::unavailable : Errc::denied,
                    closed_ ? "the daemon is stopping" : "no live attempt has this ticket");
    }
    const std::shared_ptr<JobActor>& actor = found->second.first;
    const auto nodes = static_cast<std::size_t>(actor->job().spec.resources.allocated_nodes());
    auto place = place_of_caller(ticket_sha256, nodes + limits::kCallersBeyondNodes);
    if (place == nullptr) {
        return fail(Errc::exhausted, "too many agents of this attempt are calling in");
    }
    const auto on_batch = [this](std::shared_ptr<AgentLink> link, Batch batch, std::string bytes) {
        ingest_.add(std::move(link), std::move(batch), std::move(bytes));
    };
    const auto on_gpus = [this](std::shared_ptr<AgentLink> link, const GpuBatch& look) {
        ingest_.add(std::move(link), look);
    };
    auto link = std::make_shared<AgentLink>(actor, found->second.second, std::move(peer),
                                            std::move(remote), on_batch, on_gpus);
    link->place = std::move(place);
    return link;
}

std::shared_ptr<void> TicketGate::place_of_caller(const std::string& ticket_sha256,
                                                  std::size_t most) {
    std::size_t& count = (*callers_)[ticket_sha256];
    if (count >= most) {
        return nullptr;
    }
    ++count;
    const auto leave = [callers = callers_, ticket_sha256](void*) {
        const auto at = callers->find(ticket_sha256);
        if (--at->second == 0) {
            callers->erase(at);
        }
    };
    return std::shared_ptr<void>{callers_.get(), leave};
}

void TicketGate::admit(JobActor& actor) {
    const Attempt& attempt = *actor.job().attempt();
    tickets_[attempt.ticket_hash] = {actor.shared_from_this(), attempt.number};
}

void TicketGate::retire(const Job& job) {
    for (const auto& attempt : job.attempts) {
        retired_.emplace_back(context_.clock.steady() + limits::kTicketPatience,
                              attempt.ticket_hash);
    }
    forget_retired();
}

void TicketGate::forget_retired() {
    const auto now = context_.clock.steady();
    while (!retired_.empty() && retired_.front().first <= now) {
        tickets_.erase(retired_.front().second);
        retired_.pop_front();
    }
}

void TicketGate::forget(const std::string& job) {
    std::erase_if(tickets_,
                  [&](const auto& one) { return one.second.first->job().id.value == job; });
}

bool TicketGate::has_agents(const std::string& job) const {
    return std::any_of(tickets_.begin(), tickets_.end(), [&](const auto& one) {
        const JobActor& actor = *one.second.first;
        return actor.job().id.value == job && !actor.links().empty();
    });
}

// Where lockstepd keeps the file that the agents of a job's attempt read; of a signed job they read
// a copy of it, in a folder of their user's.
std::filesystem::path TicketGate::ticket_folder(const Job& job) const {
    const Attempt& attempt = *job.attempt();
    return job.signature.empty()
               ? std::filesystem::path{attempt.directory}
               : attempt_directory(context_.settings.runs_dir, job.id, attempt.number);
}

void TicketGate::refresh(const Job& job) const {
    refresh_attempts({ticket_folder(job)}, context_.settings.agents);
}

Task<void> TicketGate::serve_as(AgentsListener agents) {
    context_.settings.agents = std::move(agents);
    std::vector<std::filesystem::path> places;
    for (const auto& [id, actor] : registry_.unfinished()) {
        if (actor->job().attempt() != nullptr) {
            places.push_back(ticket_folder(actor->job()));
        }
    }
    const std::function<Status()> tell = [places = std::move(places),
                                          listener = context_.settings.agents] {
        refresh_attempts(places, listener);
        return Status{};
    };
    co_await on_thread<Status>(context_.files, tell);
    context_.scheduler.agents_moved();
}

void TicketGate::forget_agents() {
    for (const auto& [hash, ticket] : tickets_) {
        ticket.first->forget_agents();
    }
    tickets_.clear();
}

}  // namespace lockstep
