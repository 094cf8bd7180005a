// The environment of a job: what the specification says (`environment`), what the client recorded
// of its caller (`recorded_environment`, with `inherit_environment`), and the shell text that is
// run on every node before the ranks (`setup`). Which variables travel, which are secret, what the
// ranks' environment begins with. Pure; any thread.
#pragma once

#include "job/model/spec/spec.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// environment, inherit_environment, recorded_environment, setup.
void read_environment(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors);
// Adds them to the canonical document.
void put_environment(Json& out, const JobSpec& spec);

// A POSIX name of an environment variable, of at most limits::kTextBytes.
bool is_variable_name(std::string_view text);

// Whether a variable of the caller's shell means the same on another machine. Not carried: what
// belongs to the login session, the terminal and the shell itself (SSH_*, DISPLAY, DBUS_*,
// XDG_RUNTIME_DIR, TERM, PWD …), to an allocation the caller may be in (SLURM_*, SBATCH_*, PMI*),
// to a launcher (RANK, MASTER_ADDR, …: Lockstep sets them) and LOCKSTEP_*, its token above all.
bool is_carried(std::string_view name);

// Whether the name says that the value is secret: WANDB_API_KEY, DB_PASSWORD,
// HF_TOKEN.
bool is_secret_name(std::string_view name);

// What stands for a value that is not shown.
inline constexpr std::string_view kMaskedValue = "***";
// In a specification: every value of environment and recorded_environment.
void mask_environment(Json& spec);

// What the ranks' environment begins with: `inherited` (the agent's own), with the recorded one
// over it. Without inherit_environment it is `inherited`, with a setup but for its OMP_NUM_THREADS.
// What the node itself must say stays (SLURM_*, the visible GPUs of an allocation); an agent
// outside Slurm has its environment from the daemon, and of that only what a process cannot do
// without is kept.
std::map<std::string, std::string> base_environment(
    const JobSpec& spec, const std::map<std::string, std::string>& inherited);

// `environment` of a document as it is sent: "$$" is a dollar sign, "$NAME" and "${NAME}" are
// refused, because nothing expands them on the nodes (the command line does before it sends).
// Replaces the former; of a sweep also the values of parameters environment.*.
void read_dollars(Json& document, std::vector<FieldError>& errors);
// In a document as it is sent, environment and recorded_environment with kMaskedValue for a value:
// it comes from what somebody else than the owner is shown, and the ranks would run with it. Names
// the variables, the first kMaskedNamed of them.
void refuse_masked(const Json& document, std::vector<FieldError>& errors);
inline constexpr std::size_t kMaskedNamed = 16;
// In a document as it is sent, Lockstep's own variables that `environment` may have, but in
// recorded_environment: there they have no effect. Of a stored one they are left out, so that jobs
// of older versions are read.
void refuse_own_recorded(const Json& document, std::vector<FieldError>& errors);
// A request's body up to where parse_spec() or a sweep begins: JSON, those two done.
Result<Json> sent_document(std::string_view body);
// The way back: a value as it is sent.
std::string dollars_doubled(std::string_view value);

}  // namespace lockstep
