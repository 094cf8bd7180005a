// What is done in a user's name, by a process that is that user and nothing else any more: here the
// user's statement is read, folders and files are made, and Slurm's programs are run.
#pragma once

#include "scheduler-integration/exec/config.hpp"
#include "scheduler-integration/exec/order.hpp"
#include "scheduler-integration/exec/person.hpp"
#include "scheduler-integration/exec/reply.hpp"

#include <sys/resource.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::exec {

// What a statement says of one of its jobs (job/model/spec/signed_statement.hpp has the format).
struct Signed {
    std::string document;  // SHA-256 of the specification as it was sent
    std::string name;
    std::string ranks_per_node;
    std::vector<std::pair<std::string, std::string>> sbatch;
    std::vector<std::pair<std::string, std::string>> srun;
};
// False: it is no statement, or has no such job.
bool read_statement(const std::string& text, unsigned long point, Signed& out);

// <runs>/<user>/<job>/a<attempt>
std::string attempt_folder(const Config& config, const Person& person, const Order& order);
// `core`: the limit of core files that Slurm's programs, and with them jobs, are given.
Reply act(const Config& config, const Person& person, const Order& order, const rlimit& core);
// Of sbatch: whether slurmctld has answered no, for a limit of the user's account or QOS, so that
// nothing of it is in Slurm or can come.
bool is_refused_by_policy(const Reply& reply);

}  // namespace lockstep::exec
