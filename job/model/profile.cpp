#include "job/model/profile.hpp"

#include "job/base/limits.hpp"
#include "job/model/evidence.hpp"

#include <algorithm>

namespace lockstep {

std::string profile_name(std::size_t place, std::string_view name) {
    return (place > 1 ? std::to_string(place) + "." : "") + std::string{name};
}

bool is_profile_name(std::string_view name) {
    for (std::size_t place = 1; place <= limits::kProfileProcesses; ++place) {
        const bool one = std::any_of(kProfileNames.begin(), kProfileNames.end(), [&](auto known) {
            return profile_name(place, known) == name;
        });
        if (one) {
            return true;
        }
    }
    return name == kProfileCollectives;
}

std::array<std::string, 4> profile_folders(std::int32_t generation, std::int32_t number,
                                           std::int32_t rank) {
    const auto evidence = evidence_folders(generation, rank);
    return {"profile", evidence[1], "take-" + std::to_string(number), evidence[2]};
}

}  // namespace lockstep
