// Which files were synced, in what order with renames and links: this header replaces fsync(2),
// fdatasync(2), rename(2) and link(2) of the program that includes it (once, in one source file) by
// functions that write down what they were called for and then do it. What a file system without a
// sync may lose is so proven without a power cut: the file's bytes before its name, its name before
// the call returns.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <string>
#include <vector>

namespace lockstep::test {

// "sync <path>", "rename <path>" (the new name), "link <path>", in order.
inline std::vector<std::string>& sync_log() {
    static std::vector<std::string> log;
    return log;
}

inline std::string path_of_descriptor(int fd) {
    std::array<char, PATH_MAX> text{};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const auto size = ::readlink(link.c_str(), text.data(), text.size());
    return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string{};
}

}  // namespace lockstep::test

extern "C" inline __attribute__((used)) int fsync(int fd) {
    lockstep::test::sync_log().push_back("sync " + lockstep::test::path_of_descriptor(fd));
    return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" inline __attribute__((used)) int fdatasync(int fd) {
    lockstep::test::sync_log().push_back("sync " + lockstep::test::path_of_descriptor(fd));
    return static_cast<int>(::syscall(SYS_fdatasync, fd));
}
extern "C" inline __attribute__((used)) int rename(const char* from, const char* to) noexcept {
    lockstep::test::sync_log().push_back(std::string{"rename "} + to);
    return static_cast<int>(::syscall(SYS_rename, from, to));
}
extern "C" inline __attribute__((used)) int link(const char* from, const char* to) noexcept {
    lockstep::test::sync_log().push_back(std::string{"link "} + to);
    return static_cast<int>(::syscall(SYS_link, from, to));
}
