#include "daemon/control/job_folder.hpp"

#include <sys/stat.h>

#include <string>
#include <system_error>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpoints = "checkpoints";

// Where in a job's folder a file lies decides what it is.
std::int64_t& part_of(DiskUse& use, const fs::path& below) {
    auto part = below.begin();
    if (part == below.end()) {
        return use.other;
    }
    if (*part == kCheckpoints) {
        return use.checkpoints;
    }
    if (++part == below.end()) {
        return use.other;
    }
    if (*part == "evidence") {
        return use.evidence;
    }
    const std::string name = part->string();
    return name.starts_with("rank-") || name.ends_with(".log") ? use.logs : use.other;
}

}  // namespace

DiskUse disk_use(const fs::path& job_directory, std::int64_t most,
                 std::chrono::steady_clock::time_point until) {
    DiskUse use;
    std::error_code ec;
    fs::recursive_directory_iterator at{job_directory,
                                        fs::directory_options::skip_permission_denied, ec};
    while (!ec && at != fs::recursive_directory_iterator{}) {
        if (use.files >= most || std::chrono::steady_clock::now() >= until) {
            use.partly = true;
            break;
        }
        struct stat about {};
        if (::lstat(at->path().c_str(), &about) == 0) {
            constexpr std::int64_t kBlock = 512;
            part_of(use, at->path().lexically_relative(job_directory)) +=
                std::int64_t{about.st_blocks} * kBlock;
            use.files += S_ISDIR(about.st_mode) ? 0 : 1;
        }
        at.increment(ec);
    }
    return use;
}

Status remove_job_files(const fs::path& job_directory, bool with_checkpoints) {
    std::error_code ec;
    if (with_checkpoints) {
        // From one moment to the next: half of a job's folder would look like a job's folder.
        const fs::path gone =
            job_directory.parent_path() / (".removed-" + job_directory.filename().string());
        fs::rename(job_directory, gone, ec);
        if (ec && ec != std::errc::no_such_file_or_directory) {
            return fail(Errc::unavailable, job_directory.string() + ": " + ec.message());
        }
        fs::remove_all(gone, ec);
        return ec ? Status{fail(Errc::unavailable, gone.string() + ": " + ec.message())} : Status{};
    }
    for (const fs::directory_entry& one : fs::directory_iterator{job_directory, ec}) {
        if (one.path().filename() == kCheckpoints) {
            continue;
        }
        std::error_code failed;
        fs::remove_all(one.path(), failed);
        if (failed) {
            return fail(Errc::unavailable, one.path().string() + ": " + failed.message());
        }
    }
    if (ec && ec != std::errc::no_such_file_or_directory) {
        return fail(Errc::unavailable, job_directory.string() + ": " + ec.message());
    }
    fs::remove(job_directory, ec);  // if there were no checkpoints
    return {};
}

}  // namespace lockstep
