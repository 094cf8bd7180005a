#include "job/agent/diagnostics/nccl_conf.hpp"

#include "job/base/files.hpp"
#include "job/base/text.hpp"

#include <vector>

namespace lockstep {

bool nccl_conf_names(std::string_view variable,
                     const std::map<std::string, std::string>& environment,
                     const std::filesystem::path& root) {
    constexpr std::size_t kNcclConfBytes = 64U << 10U;
    std::vector<std::filesystem::path> files{root / "etc/nccl.conf"};
    const auto named = environment.find("NCCL_CONF_FILE");
    const auto home = environment.find("HOME");
    if (named != environment.end()) {
        files.emplace_back(named->second);
    } else if (home != environment.end()) {
        files.push_back(std::filesystem::path{home->second} / ".nccl.conf");
    }
    const std::string begin = std::string{variable} + "=";
    for (const auto& file : files) {
        for (const std::string& line : split(read_file(file, kNcclConfBytes).value_or(""), '\n')) {
            if (trim(line).starts_with(begin)) {
                return true;
            }
        }
    }
    return false;
}

}  // namespace lockstep
