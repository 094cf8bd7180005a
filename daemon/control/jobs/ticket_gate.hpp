// Lets agents in, each by the ticket of its attempt, and keeps the files up to date from which
// attempts know where agents are listened for. Control thread only; agents' connections may outlive
// it.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/agent_gate.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/history/ingest.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

namespace lockstep {

class TicketGate final : public AgentGate {
  public:
    TicketGate(ControlContext& context, const JobRegistry& registry, Ingest& ingest)
        : context_(context), registry_(registry), ingest_(ingest) {}

    Result<std::shared_ptr<AgentSession>> open(const std::string& ticket_sha256,
                                               std::shared_ptr<AgentPeer> peer,
                                               std::string remote) override;

    // The ticket of the job's newest attempt is good from now on.
    void admit(JobActor& actor);
    // The job is over. Its agents may come back for a while and deliver the rest.
    void retire(const Job& job);
    // The job, which was over, is none any more.
    void forget(const std::string& job);
    // Whether agents are connected to a job, unfinished or over.
    bool has_agents(const std::string& job) const;

    // The file of the job's newest attempt says what the settings say; at the start, as it waits
    // for the disk.
    void refresh(const Job& job) const;
    // Agents are listened for in another way: from now on attempts are told so, and those that are
    // under way before this returns.
    Task<void> serve_as(AgentsListener agents);

    // Nobody comes in any more: unavailable.
    void close() { closed_ = true; }
    // Lets go of all agents, which hold their jobs; once no job runs.
    void forget_agents();

  private:
    void forget_retired();
    // Until it is let go; nullptr: there are `most`.
    std::shared_ptr<void> place_of_caller(const std::string& ticket_sha256, std::size_t most);
    std::filesystem::path ticket_folder(const Job& job) const;

    ControlContext& context_;
    const JobRegistry& registry_;
    Ingest& ingest_;
    std::unordered_map<std::string, std::pair<std::shared_ptr<JobActor>, std::int32_t>>
        tickets_;  // hash → attempt
    // Tickets of jobs that are over, oldest first: their agents may still be on their way out.
    std::deque<std::pair<std::chrono::steady_clock::time_point, std::string>> retired_;
    // By the same hash: connections whose HELLO is not accepted. They may end after this has gone.
    using Callers = std::unordered_map<std::string, std::size_t>;
    std::shared_ptr<Callers> callers_ = std::make_shared<Callers>();
    bool closed_ = false;
};

}  // namespace lockstep
