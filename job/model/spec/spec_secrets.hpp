// The secrets of a job: variables of its ranks whose values are in lockstepd's store of its user's
// secrets (daemon/store/secret_store.hpp) and nowhere in the specification, which only names them.
// Pure; any thread.
#pragma once

#include "job/model/spec/spec.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// invalid, with why, unless it may name a secret: a variable of at most limits::kSecretNameBytes
// that neither Lockstep nor a scheduler or launcher sets, and that no shell, loader or Python
// obeys.
Status check_secret_name(std::string_view name);
// invalid: empty, too long, or with a zero byte, which no variable can hold.
Status check_secret_value(std::string_view value);

// /secrets of a specification; after the environment has been read. What the client recorded of its
// caller under one of the names is left out: it would be stored, and the secret goes before it.
void read_secrets(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors);

// What somebody is told who asks for secrets that their user has not set.
Error missing_secrets(const std::vector<std::string>& missing, const JobSpec& spec);
// The same in a job's cause, when they were removed between submission and start.
std::string removed_secrets(const std::vector<std::string>& missing);

}  // namespace lockstep
