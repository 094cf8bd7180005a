// Does what a job's machine wants done, in its order: tells agents, answers commands, gives the
// scheduler notice, has the job looked at again. Control thread; what it is made with must outlive
// it.
#pragma once

#include "daemon/control/actor/agent_link.hpp"
#include "daemon/control/actor/agent_welcome.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/machine/job_machine.hpp"

#include <deque>

namespace lockstep {

AgentLink& link_of(const AgentPtr& agent);

class JobEffects {
  public:
    // `inputs`: of the job. `over`: whether it has ended.
    JobEffects(ControlContext& context, const JobMachine& machine, std::deque<JobInput>& inputs,
               const bool& over)
        : context_{context},
          machine_{machine},
          welcome_{context, machine},
          inputs_{inputs},
          over_{over} {}

    void perform(Effects effects);

  private:
    void perform(effect::Send& one);
    void perform(effect::SendShared& one);
    void perform(effect::Greet& one);
    void perform(effect::Close& one);
    void perform(effect::Acknowledge& one);
    void perform(effect::Answer& one);
    void perform(effect::Claimed& one);
    void perform(effect::ExpectEnd& one);
    void perform(effect::AttemptOver& one);
    void perform(effect::LookAgain& one);
    void perform(effect::HearAgain& one);

    ControlContext& context_;
    const JobMachine& machine_;
    AgentWelcome welcome_;
    std::deque<JobInput>& inputs_;
    const bool& over_;
};

}  // namespace lockstep
