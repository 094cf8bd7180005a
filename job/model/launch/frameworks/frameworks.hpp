// What the files of this folder, one per framework, have in common. Of the model alone.
#pragma once

#include "job/model/launch/framework_env.hpp"
#include "job/model/launch/rank_env.hpp"
#include "job/model/spec/framework.hpp"
#include "job/model/spec/spec.hpp"

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::frameworks {

using Variables = std::map<std::string, std::string>;

inline constexpr std::array kEveryLaunch{Launch::rank, Launch::node, Launch::task};
inline constexpr std::array kRankOrNode{Launch::rank, Launch::node};
inline constexpr std::array kRankOrTask{Launch::rank, Launch::task};
inline constexpr std::array kRankAlone{Launch::rank};

inline constexpr std::array<std::string_view, 2> kWorkersAndServers{"worker", "ps"};

// host:port of the master.
std::string master(const RankPlace& place);
// Of a rank; "" where it has none.
const std::string& endpoint(const RankPlace& place, std::int32_t rank);
// Of the ranks of one role, by their number in it.
std::vector<std::string> endpoints_of(const JobSpec& spec, const RankPlace& place,
                                      std::string_view role);
bool has_role(const JobSpec& spec, std::string_view name);
inline bool always(const JobSpec&) {
    return true;
}

// JAX_LOCAL_DEVICE_IDS: the rank's share of the GPUs that it sees. JAX's own choice is one for each
// process under Slurm, and all of them elsewhere. Of Keras on JAX as well.
void add_jax_devices(Variables& out, const JobSpec& spec, const RankPlace& place);

// TensorFlow's, of Keras on it as well.
std::span<const std::string_view> tensorflow_roles(const JobSpec& spec);
void check_tensorflow_roles(const JobSpec& spec, std::vector<FieldError>& errors);
bool tensorflow_ends_job(const JobSpec& spec, const RoleSpec& role);
void check_tensorflow(const JobSpec& spec, std::vector<FieldError>& errors);
void add_tensorflow(Variables& out, const JobSpec& spec, const RankPlace& place);
std::int32_t tensorflow_gpus_of(const JobSpec& spec, const RankRole& role);

}  // namespace lockstep::frameworks
