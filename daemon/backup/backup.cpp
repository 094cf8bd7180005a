#include "daemon/backup/backup.hpp"

#include "daemon/backup/staged_folder.hpp"
#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/machine.hpp"
#include "job/base/version.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kManifestBytes = 1U << 20U;

// files.jsonl while it is written.
class FileList {
  public:
    explicit FileList(const fs::path& file) : out_(file, std::ios::binary | std::ios::trunc) {}

    Status add(const FileEntry& entry, Manifest& counts) {
        const std::string line = encode_entry(entry) + "\n";
        hash_.add(line);
        out_.write(line.data(), static_cast<std::streamsize>(line.size()));
        if (entry.left_out.empty()) {
            ++counts.files;
            counts.file_bytes += entry.bytes;
        } else {
            ++counts.left_out;
            counts.left_out_bytes += entry.bytes;
        }
        return written();
    }
    Result<std::string> close() {
        out_.close();
        LOCKSTEP_TRY(written());
        return hash_.hex();
    }

  private:
    // A stream keeps no errno of its own; what fails here is the disk.
    Status written() const {
        return out_ ? Status{}
                    : fail(errno_error(std::string{"write "} + kFileListName,
                                       errno != 0 ? errno : EIO));
    }
    std::ofstream out_;
    Sha256 hash_;
};

std::string why_left_out(const std::string& path, RunsCopied copy) {
    const auto first = path.find('/');
    const std::string name = path.substr(path.rfind('/') + 1);
    if (path.front() == '.') {
        return "not of a job";  // a store's mark, and what is being removed
    }
    if (name == "agent.json" || name.starts_with("agent.json.tmp.")) {
        return "ticket";
    }
    const bool checkpoint =
        first != std::string::npos && path.substr(first + 1).starts_with("checkpoints/");
    if (copy == RunsCopied::none) {
        return "runs are left out";
    }
    return checkpoint && copy == RunsCopied::logs ? "checkpoint" : "";
}

// Without its logs a backup would look whole.
Status check_runs_directory(const BackupPlan& plan, const DatabaseFacts& facts) {
    if (plan.copy == RunsCopied::none) {
        return {};
    }
    std::error_code ec;
    if (!plan.runs_named && !facts.runs.empty() && fs::is_directory(facts.runs, ec) &&
        !fs::equivalent(facts.runs, plan.runs, ec)) {
        return fail(Errc::conflict, "the runs of this store are in " + facts.runs +
                                        ": name that directory with --runs-dir, or " +
                                        plan.runs.string() +
                                        " if this is a copy and its runs are there");
    }
    if (facts.jobs > 0 && !fs::is_directory(plan.runs, ec)) {
        return fail(Errc::not_found,
                    "there is no runs directory " + plan.runs.string() +
                        ": name it with --runs-dir, or leave the runs out with --runs none");
    }
    return {};
}

Status copy_runs(const BackupPlan& plan, const fs::path& to, FileList& list, Manifest& manifest,
                 const StopAsked& stop) {
    std::error_code ec;
    if (!fs::is_directory(plan.runs, ec)) {
        return {};
    }
    const LeaveOut leave_out = [&](const std::string& path) {
        return why_left_out(path, plan.copy);
    };
    const std::function<Status(FileEntry)> done = [&](FileEntry entry) {
        return list.add(entry, manifest);
    };
    const std::string prefix = std::string{kRunsFolder} + "/";
    return copy_folder(plan.runs, to / kRunsFolder, prefix, leave_out, stop, done);
}

// Of the data directory: the audit log, and with `secrets` those, and snapshots with all runs.
Status copy_data(const BackupPlan& plan, const fs::path& to, FileList& list, Manifest& manifest,
                 const StopAsked& stop) {
    std::vector<std::string> names{"audit.log"};
    if (plan.secrets) {
        names.insert(names.end(), secret_names().begin(), secret_names().end());
    }
    if (plan.copy == RunsCopied::all) {
        names.emplace_back("snapshots");
    }
    const fs::path folder = to / kDataFolder;
    if (::mkdir(folder.c_str(), 0700) != 0) {
        return fail(errno_error("mkdir " + folder.string(), errno));
    }
    const std::string prefix = std::string{kDataFolder} + "/";
    for (const std::string& name : names) {
        std::error_code ec;
        const auto status = fs::symlink_status(plan.data / name, ec);
        if (fs::is_directory(status)) {
            const LeaveOut nothing = [](const std::string&) { return std::string{}; };
            const std::function<Status(FileEntry)> done = [&](FileEntry entry) {
                return list.add(entry, manifest);
            };
            if (Status copied = copy_folder(plan.data / name, folder / name, prefix + name + "/",
                                            nothing, stop, done);
                !copied) {
                return copied;
            }
        } else if (fs::is_regular_file(status)) {
            auto entry = copy_plain_file(plan.data / name, folder / name, stop);
            LOCKSTEP_TRY(entry);
            entry->path = prefix + name;
            if (Status added = list.add(*entry, manifest); !added) {
                return added;
            }
        }
    }
    return {};
}

bool lies_in(const fs::path& path, const fs::path& folder) {
    std::error_code ec;
    const auto rest =
        fs::weakly_canonical(path, ec).lexically_relative(fs::weakly_canonical(folder, ec));
    return !rest.empty() && *rest.begin() != "..";
}

Result<Manifest> read_manifest(const fs::path& folder) {
    const auto text = read_plain_file(folder / kManifestName, kManifestBytes);
    if (!text) {
        return fail(Errc::not_found, folder.string() + " is not a backup, or an unfinished one: " +
                                         text.error().message);
    }
    auto manifest = decode_manifest(*text);
    return manifest ? std::move(manifest)
                    : fail(manifest.error().in((folder / kManifestName).string()));
}

// Counts what it tells.
class Problems {
  public:
    explicit Problems(const std::function<void(const std::string&)>& tell) : tell_(tell) {}
    void add(const std::string& what) {
        ++count_;
        tell_(what);
    }
    std::size_t count() const { return count_; }

  private:
    const std::function<void(const std::string&)>& tell_;
    std::size_t count_ = 0;
};

Status check_entry(const fs::path& folder, const FileEntry& entry, const StopAsked& stop,
                   Problems& problems) {
    const fs::path file = folder / entry.path;
    if (entry.sha256.empty()) {
        std::error_code ec;
        if (fs::read_symlink(file, ec).string() != entry.link) {
            problems.add(entry.path + ": not the link that it was");
        }
        return {};
    }
    const auto found = hash_file(file, stop);
    if (!found && found.error().code == Errc::cancelled) {
        return fail(found.error());
    }
    if (!found) {
        problems.add(found.error().message);
    } else if (found->bytes != entry.bytes) {
        problems.add(entry.path + ": " + std::to_string(found->bytes) + " bytes, not " +
                     std::to_string(entry.bytes));
    } else if (found->sha256 != entry.sha256) {
        problems.add(entry.path + ": its bytes have changed");
    }
    return {};
}

Status check_list(const fs::path& folder, const Manifest& manifest, const StopAsked& stop,
                  Problems& problems) {
    const auto list = hash_file(folder / kFileListName, stop);
    if (!list || list->sha256 != manifest.list_sha256) {
        problems.add(list ? std::string{kFileListName} + ": its bytes have changed"
                          : list.error().message);
        return {};
    }
    std::set<std::string> known{kManifestName, kFileListName, kDatabaseName};
    Status read = read_file_list(folder, [&](const FileEntry& entry) {
        if (!entry.left_out.empty()) {
            return Status{};
        }
        known.insert(entry.path);
        return check_entry(folder, entry, stop, problems);
    });
    if (!read) {
        return read;
    }
    std::error_code ec;
    for (fs::recursive_directory_iterator at{folder, ec}, end; !ec && at != end; at.increment(ec)) {
        const std::string path = at->path().lexically_relative(folder).string();
        if (!fs::is_directory(at->symlink_status()) && !known.contains(path)) {
            problems.add(path + ": not of this backup");
        }
    }
    return {};
}

Status check_store(const fs::path& folder, const Manifest& manifest, const StopAsked& stop,
                   Problems& problems) {
    const auto file = hash_file(folder / kDatabaseName, stop);
    if (!file && file.error().code == Errc::cancelled) {
        return fail(file.error());
    }
    if (!file || file->sha256 != manifest.database_sha256) {
        problems.add(file ? std::string{kDatabaseName} + ": its bytes have changed"
                          : file.error().message);
        return {};
    }
    if (const auto facts = check_database(folder / kDatabaseName); !facts) {
        problems.add(facts.error().message);
    }
    return {};
}

}  // namespace

const std::vector<std::string>& secret_names() {
    static const std::vector<std::string> kNames{"token", "tls", "slurm-tokens", "secrets",
                                                 "signatures"};
    return kNames;
}

Status read_file_list(const fs::path& folder, const std::function<Status(const FileEntry&)>& take) {
    std::ifstream in{folder / kFileListName, std::ios::binary};
    std::string line;
    for (std::size_t number = 1; std::getline(in, line); ++number) {
        const auto entry = decode_entry(line);
        if (!entry) {
            return fail(
                entry.error().in(std::string{kFileListName} + ", line " + std::to_string(number)));
        }
        if (Status taken = take(*entry); !taken) {
            return taken;
        }
    }
    return in.eof() ? Status{} : fail(Errc::corrupt, "cannot read " + std::string{kFileListName});
}

Result<Manifest> make_backup(const BackupPlan& plan, UnixMillis now, const StopAsked& stop) {
    if (lies_in(plan.to, plan.runs)) {
        return fail(Errc::invalid, plan.to.string() + " is in the runs directory, which is copied");
    }
    auto folder = StagedFolder::begin(plan.to);
    LOCKSTEP_TRY(folder);
    const fs::path& to = folder->path();
    Manifest manifest;
    manifest.version = kVersion;
    manifest.made_at = now;
    manifest.host = host_name();
    manifest.data_directory = plan.data.string();
    manifest.runs_directory = plan.runs.string();
    manifest.runs = plan.copy;
    manifest.secrets = plan.secrets;
    // The store first: what the runs have beyond it does no harm, what they lack would be missed.
    if (Status copied = copy_database(plan.data / kDatabaseName, to / kDatabaseName, stop);
        !copied) {
        return fail(copied.error());
    }
    auto facts = check_database(to / kDatabaseName);
    LOCKSTEP_TRY(facts);
    LOCKSTEP_TRY(check_runs_directory(plan, *facts));
    FileList list{to / kFileListName};
    Status copied = copy_data(plan, to, list, manifest, stop);
    copied = copied ? copy_runs(plan, to, list, manifest, stop) : copied;
    auto listed = copied ? list.close() : fail(copied.error());
    LOCKSTEP_TRY(listed);
    manifest.list_sha256 = std::move(*listed);
    const auto database = hash_file(to / kDatabaseName, stop);
    LOCKSTEP_TRY(database);
    manifest.database = std::move(*facts);
    manifest.database_bytes = database->bytes;
    manifest.database_sha256 = database->sha256;
    Status done = write_file_atomic(to / kManifestName, encode_manifest(manifest), 0600);
    done = done ? folder->finish() : done;
    return done ? Result<Manifest>{std::move(manifest)} : fail(done.error());
}

Result<Manifest> verify_backup(const fs::path& folder, const StopAsked& stop,
                               const std::function<void(const std::string&)>& problem) {
    auto manifest = read_manifest(folder);
    if (!manifest) {
        return manifest;
    }
    Problems problems{problem};
    Status checked = check_store(folder, *manifest, stop, problems);
    checked = checked ? check_list(folder, *manifest, stop, problems) : checked;
    LOCKSTEP_TRY(checked);
    if (problems.count() > 0) {
        return fail(Errc::corrupt, folder.string() + " is damaged: " +
                                       std::to_string(problems.count()) + " problems");
    }
    return manifest;
}

}  // namespace lockstep
