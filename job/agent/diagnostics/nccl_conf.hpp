// What a site has written into NCCL's own configuration files. Blocking reads of small files; any
// thread.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace lockstep {

// Whether they set the variable: NCCL_CONF_FILE or ~/.nccl.conf, and /etc/nccl.conf ("Environment
// Variables" in NVIDIA's guide to NCCL). The environment goes before the files, so what stands
// there would be overruled by a variable of ours. `environment`: the rank's; `root`: in front of
// /etc.
bool nccl_conf_names(std::string_view variable,
                     const std::map<std::string, std::string>& environment,
                     const std::filesystem::path& root = "/");

}  // namespace lockstep
