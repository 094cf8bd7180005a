#include "job/model/launch/frameworks/frameworks.hpp"

#include <algorithm>

namespace lockstep::frameworks {

std::string master(const RankPlace& place) {
    return host_and_port(place.master_addr, place.master_port);
}

const std::string& endpoint(const RankPlace& place, std::int32_t rank) {
    static const std::string kNone;
    const auto index = static_cast<std::size_t>(rank);
    return index < place.endpoints.size() ? place.endpoints[index] : kNone;
}

std::vector<std::string> endpoints_of(const JobSpec& spec, const RankPlace& place,
                                      std::string_view role) {
    std::vector<std::string> out;
    for (std::int32_t rank = 0; rank < place.world_size; ++rank) {
        if (spec.role_of(rank).name == role) {
            out.push_back(endpoint(place, rank));
        }
    }
    return out;
}

bool has_role(const JobSpec& spec, std::string_view name) {
    return std::any_of(spec.roles.begin(), spec.roles.end(),
                       [&](const RoleSpec& role) { return role.name == name; });
}

}  // namespace lockstep::frameworks
