#include "daemon/control/actor/job_folder.hpp"

#include <sys/stat.h>

#include <string>
#include <system_error>
#include <utility>
#include <vector>

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
    if (*part == "evidence" || *part == "profile") {
        return use.evidence;
    }
    const std::string name = part->string();
    return name.starts_with("rank-") || name.ends_with(".log") ? use.logs : use.other;
}

}  // namespace

DiskCount::DiskCount(fs::path job_directory)
    : job_directory_(std::move(job_directory)), folders_{job_directory_} {}

bool DiskCount::next(std::int64_t most, std::chrono::steady_clock::time_point until) {
    if (folders_.empty() || use_.partly) {
        return false;
    }
    const fs::path folder = std::move(folders_.back());
    folders_.pop_back();
    std::error_code ec;
    fs::directory_iterator at{folder, fs::directory_options::skip_permission_denied, ec};
    while (!ec && at != fs::directory_iterator{}) {
        if (use_.files >= most || std::chrono::steady_clock::now() >= until) {
            use_.partly = true;
            return false;
        }
        struct stat about{};
        if (::lstat(at->path().c_str(), &about) == 0) {
            constexpr std::int64_t kBlock = 512;
            part_of(use_, at->path().lexically_relative(job_directory_)) +=
                std::int64_t{about.st_blocks} * kBlock;
            if (S_ISDIR(about.st_mode)) {
                folders_.push_back(at->path());
            } else {
                ++use_.files;
            }
        }
        at.increment(ec);
    }
    // It went, or became something else, or its user has made paths that nobody can open.
    const bool ours = ec == std::errc::no_such_file_or_directory ||
                      ec == std::errc::not_a_directory || ec == std::errc::filename_too_long;
    use_.failed = use_.failed || (ec && !ours);
    return true;
}

DiskUse disk_use(const fs::path& job_directory, std::int64_t most,
                 std::chrono::steady_clock::time_point until) {
    DiskCount count{job_directory};
    while (count.next(most, until)) {
    }
    return count.use();
}

std::string folder_below(const fs::path& path, const fs::path& parent) {
    if (path.empty() || parent.empty()) {
        return "";
    }
    // "a/b/.." is a/, whose last part is empty.
    const fs::path below = path.lexically_normal().lexically_relative(parent.lexically_normal());
    const std::string first = below.empty() ? "" : below.begin()->string();
    return first == "." || first == ".." ? "" : first;
}

namespace {

// The first thing that went wrong is told, after all that can go has gone.
Status remove_below(const fs::path& folder, const char* but) {
    std::error_code ec;
    Status out;
    for (const fs::directory_entry& one : fs::directory_iterator{folder, ec}) {
        if (but != nullptr && one.path().filename() == but) {
            continue;
        }
        std::error_code failed;
        fs::remove_all(one.path(), failed);
        if (failed && out) {
            out = fail(Errc::unavailable, one.path().string() + ": " + failed.message());
        }
    }
    if (out && ec && ec != std::errc::no_such_file_or_directory) {
        out = fail(Errc::unavailable, folder.string() + ": " + ec.message());
    }
    return out;
}

}  // namespace

Status remove_folder(const fs::path& folder) {
    // From one moment to the next: half of a job's folder would look like a job's folder.
    const fs::path gone = folder.parent_path() / (".removed-" + folder.filename().string());
    std::error_code ec;
    fs::rename(folder, gone, ec);
    if (ec && ec != std::errc::no_such_file_or_directory) {
        return fail(Errc::unavailable, folder.string() + ": " + ec.message());
    }
    if (Status done = remove_below(gone, nullptr); !done) {
        return done;
    }
    fs::remove(gone, ec);
    return ec ? Status{fail(Errc::unavailable, gone.string() + ": " + ec.message())} : Status{};
}

Status remove_job_files(const fs::path& job_directory, bool with_checkpoints) {
    if (with_checkpoints) {
        return remove_folder(job_directory);
    }
    if (Status done = remove_below(job_directory, kCheckpoints); !done) {
        return done;
    }
    std::error_code ec;
    fs::remove(job_directory, ec);  // if there were no checkpoints
    return {};
}

Status remove_job_files(const fs::path& job_directory, const std::string& problem,
                        const fs::path& before, bool with_checkpoints) {
    if (!before.empty()) {
        if (Status done = remove_job_files(before, with_checkpoints); !done) {
            return done;
        }
    }
    std::error_code ec;
    if (!problem.empty() && !fs::exists(job_directory, ec)) {
        // That it is not there may be what is wrong: a file system that is not mounted.
        return fail(Errc::unavailable, problem);
    }
    return remove_job_files(job_directory, with_checkpoints);
}

}  // namespace lockstep
