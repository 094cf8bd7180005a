// The `slurm` section of a spec. Part of spec.cpp's parser; same rules.
#pragma once

#include "job/model/spec.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

void read_slurm(const Json& json, const std::string& pointer, SlurmSpec& out,
                std::vector<FieldError>& errors);
// Parts of GPUs (gres mps, shard) beside whole ones, which Slurm gives no job.
void check_gpus_once(const SlurmSpec& slurm, const std::string& pointer, std::int32_t gpus_per_node,
                     std::vector<FieldError>& errors);
// What is stated of it, in the order of the contract.
Json to_json(const SlurmSpec& slurm);

// The options that `directives` may name, in alphabetical order; for documentation.
std::vector<std::string_view> slurm_directives();

}  // namespace lockstep
