// The fields of the contract that this version knows but cannot honour, and the small objects
// around them. Part of spec.cpp's parser; same rules.
#pragma once

#include "job/model/spec/spec.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// An object whose names are the user's, with texts: labels, environment.
struct MapRule {
    std::size_t most = 0;   // entries
    std::size_t bytes = 0;  // of a value
    // What is wrong with a name; "" = nothing. The value of a wrong one is not read.
    std::string_view (*wrong_name)(std::string_view name) = nullptr;
};
void read_map(ObjectReader& in, std::string_view key, std::map<std::string, std::string>& target,
              const MapRule& rule, std::vector<FieldError>& errors);

void read_checkpoint(const Json& json, const std::string& pointer, CheckpointSpec& out,
                     std::vector<FieldError>& errors);
// What differs from the defaults.
Json to_json(const CheckpointSpec& checkpoint);

// /resources, of a specification and of a job's view: what is always there, and else what differs
// from its default.
Json to_json(const Resources& resources);

// After framework, working_directory and checkpoint have been read.
void read_container(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors);
Json to_json(const ContainerSpec& container);

// Ids of jobs, each once.
void read_after(ObjectReader& in, std::vector<std::string>& out, std::vector<FieldError>& errors);

// launch and roles: what the framework and the resources, which have been read, allow.
void read_launch(ObjectReader& in, JobSpec& spec);
void read_roles(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors);
Json to_json(const std::vector<RoleSpec>& roles);

// nodes are read already.
void read_min_nodes(ObjectReader& in, Resources& out);
// What can go on with fewer nodes, and only once somebody has said that it may.
void check_elastic(const JobSpec& spec, std::vector<FieldError>& errors);

// After launch and container have been read.
void read_recovery(ObjectReader& parent, JobSpec& spec, std::vector<FieldError>& errors);
void read_preflight(ObjectReader& parent, PreflightSpec& out, std::vector<FieldError>& errors);
// What differs from the defaults.
Json to_json(const PreflightSpec& preflight);
void read_watch(ObjectReader& parent, WatchSpec& out, std::vector<FieldError>& errors);
Json to_json(const RecoverySpec& recovery);
// What differs from the defaults.
Json to_json(const WatchSpec& watch);

// sweep: what asks for nothing is accepted, everything else is refused by name.
void refuse_later_fields(ObjectReader& in);

}  // namespace lockstep
