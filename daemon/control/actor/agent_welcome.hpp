// What the agents of a job are told when they call in: WELCOME, with the specification and the
// values of the job's secrets. Control thread; the context and the machine must outlive it.
#pragma once

#include "daemon/control/base/context.hpp"
#include "daemon/control/machine/job_machine.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

class AgentWelcome {
  public:
    AgentWelcome(ControlContext& context, const JobMachine& machine)
        : context_{context}, machine_{machine} {}

    // As it is sent. `over`: the job has ended, and its secrets are nobody's any more.
    std::string text(const Agent& link, bool over);

  private:
    const SecretStore::Values& secrets_now();

    ControlContext& context_;
    const JobMachine& machine_;
    SecretStore::Values secrets_;  // of the attempt with this number
    std::int32_t secrets_attempt_ = 0;
    std::string spec_text_;  // "" = nobody has called in yet
    std::string document_;   // the same, of a job that is signed
};

}  // namespace lockstep
