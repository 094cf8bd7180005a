// What the ranks' environment begins with: the agent's own, the one recorded of the caller, the
// job's secrets, and what the job's setup makes of it. The setup is run once per attempt and node;
// later generations find its result. Secrets are in no file, and what the agent says or keeps of
// the ranks' words is without them.
// Agent thread only; must outlive the TaskGroup's coroutines, `config` and the specification it.
#pragma once

#include "job/agent/node/node_config.hpp"
#include "job/agent/ranks/secret_mask.hpp"
#include "job/async/subprocess.hpp"
#include "job/async/task_group.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/wire/wire.hpp"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace lockstep {

class JobEnvironment {
  public:
    using Variables = std::map<std::string, std::string>;

    // `folder`: of this agent alone. `ended`: the setup has.
    JobEnvironment(TaskGroup& tasks, const NodeConfig& config, std::filesystem::path folder,
                   std::function<void()> ended);

    // Once, with the first WELCOME, whose secrets are these ranks' own from then on. Why no rank
    // can start; "" = nothing is missing.
    std::string take_secrets(const JobSpec& spec, wire::Welcome& welcome);
    // Once, after it. Whether the setup is to run; else everything is there.
    bool begin(const JobSpec& spec);
    // `ended` follows.
    void run_setup();

    // Why no rank can start, for the job's user; "" = none is known.
    const std::string& problem() const { return problem_; }
    // Before the framework's variables, and without the secrets.
    const Variables& base() const { return base_; }
    void add_secrets(Variables& environment) const;
    // Of a task that srun has started: what srun told it (its process manager, Slurm's variables)
    // is added to what all ranks begin with.
    Variables of_task(const Variables& own) const;

    const std::shared_ptr<const SecretMask>& mask() const { return mask_; }  // null: none needed
    std::string masked(std::string text) const;
    void mask_end(wire::Exited& exited) const;

    // SIGTERM to the setup; `ended` follows.
    void terminate() { runner_.terminate_all(); }
    // Nobody wants to hear of it any more.
    void kill();

  private:
    Task<void> run();

    TaskGroup& tasks_;
    const NodeConfig& config_;
    std::filesystem::path folder_;
    std::function<void()> ended_;
    const JobSpec* spec_ = nullptr;
    Variables secrets_;
    std::shared_ptr<const SecretMask> mask_;
    Variables base_;
    std::string problem_;
    ProcessRunner runner_;
    bool killed_ = false;
};

}  // namespace lockstep
