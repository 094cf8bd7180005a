// The `slurm` section of a spec. Part of spec.cpp's parser; same rules.
#pragma once

#include "job/model/spec/spec.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

void read_slurm(const Json& json, const std::string& pointer, SlurmSpec& out,
                std::vector<FieldError>& errors);
// What Slurm gives no job: parts of GPUs (gres mps, shard) beside whole ones, nodes that are shared
// and exclusive, nodes that segments do not add up to.
void check_against_resources(const SlurmSpec& slurm, const std::string& pointer,
                             const Resources& resources, std::vector<FieldError>& errors);
// What is stated of it, in the order of the contract.
Json to_json(const SlurmSpec& slurm);

// The options that `directives` may name, in alphabetical order; for documentation.
std::vector<std::string_view> slurm_directives();

}  // namespace lockstep
