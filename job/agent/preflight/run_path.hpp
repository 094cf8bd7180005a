// Where the loader looks first for what a program or library needs, read from the file. Blocking;
// any thread.
#pragma once

#include <filesystem>
#include <vector>

namespace lockstep {

struct RunPath {
    std::vector<std::filesystem::path>
        folders;                      // in their order, $ORIGIN replaced by the file's folder
    bool before_environment = false;  // DT_RPATH: they go before LD_LIBRARY_PATH
};
// `file`: a program's with no link in it, a library's as it was found, as the loader takes $ORIGIN.
// Empty: it has none, or it is no file of 64-bit ELF in this machine's byte order.
RunPath run_path_of(const std::filesystem::path& file);

}  // namespace lockstep
