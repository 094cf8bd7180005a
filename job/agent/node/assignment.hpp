// What this agent was given to do: the job's specification, which is that of the first WELCOME that
// was understood, and what the newest WELCOME says beside it. Where the job's user has signed the
// specification it is that one whatever the daemon says, and so is what follows from it. Agent
// thread only; the configuration outlives it, and it outlives the JobEnvironment, which points to
// its specification.
#pragma once

#include "job/agent/node/job_environment.hpp"
#include "job/agent/node/node_config.hpp"
#include "job/base/result.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/wire/wire.hpp"

#include <optional>
#include <string>
#include <utility>

namespace lockstep {

class Assignment {
  public:
    explicit Assignment(const NodeConfig& config) : config_(config) {}

    // Every WELCOME. An error: the specification is not understood, for the job's user; there is
    // still none, but welcome() and address() are of this one.
    Status take(const wire::Welcome& welcome, const std::string& local_address);
    // Once, when the specification is there: see JobEnvironment::take_secrets().
    std::string give_secrets(JobEnvironment& environment) {
        return environment.take_secrets(*spec_, welcome_);
    }
    void forget_secrets();

    // A specification is there. It stays where it is.
    bool known() const { return spec_.has_value(); }
    const JobSpec& spec() const { return *spec_; }  // only if known()
    const wire::Welcome& welcome() const { return welcome_; }
    // This node's, as the daemon sees it, or where its peers have reached it.
    const std::string& address() const { return address_; }
    void reached_at(std::string address) { address_ = std::move(address); }

  private:
    void keep_to_what_is_signed();

    const NodeConfig& config_;
    std::optional<JobSpec> spec_;
    wire::Welcome welcome_;
    std::string address_;
};

}  // namespace lockstep
