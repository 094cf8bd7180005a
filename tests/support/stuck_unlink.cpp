// For LD_PRELOAD: removing what lies below a folder whose path has STUCK_UNLINK in it never
// returns, as on a file system whose server is gone.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace {

bool is_stuck(int folder) {
    const char* part = std::getenv("STUCK_UNLINK");
    std::array<char, 4096> path{};
    const std::string link = "/proc/self/fd/" + std::to_string(folder);
    return part != nullptr && ::readlink(link.c_str(), path.data(), path.size() - 1) > 0 &&
           std::string{path.data()}.find(part) != std::string::npos;
}

}  // namespace

extern "C" int unlinkat(int folder, const char* name, int flags) {
    while (is_stuck(folder)) {
        ::pause();
    }
    using Call = int (*)(int, const char*, int);
    static const auto next = reinterpret_cast<Call>(::dlsym(RTLD_NEXT, "unlinkat"));
    return next(folder, name, flags);
}
