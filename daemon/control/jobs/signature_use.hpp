// Whether signatures of users (scheduler-integration/signatures.hpp) are needed: by jobs that are
// not over, of which a sweep's have one in common. Control thread only.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"

#include <string>

namespace lockstep {

// What the signature is called that the stored job came with; "" = it came with none, or that
// cannot be read.
Task<std::string> signature_of(ControlContext& context, JobId job);
// Removes it, unless a job needs it. "" is none. Blocking, short.
void forget_unused_signature(const ControlContext& context, const JobRegistry& registry,
                             const std::string& user, const std::string& name);

}  // namespace lockstep
