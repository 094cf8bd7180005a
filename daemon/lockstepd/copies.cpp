#include "daemon/lockstepd/copies.hpp"

#include "daemon/backup/backup.hpp"
#include "daemon/backup/restore.hpp"
#include "daemon/backup/store_place.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"
#include "job/base/start_limits.hpp"

#include <csignal>
#include <iostream>
#include <string>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kCommandDone = 0;
constexpr int kCommandFailed = 1;
constexpr int kBadCommand = 2;
constexpr int kInterrupted = 130;

volatile std::sig_atomic_t stop_asked = 0;

void ask_to_stop(int) {
    stop_asked = 1;
}

bool is_stop_asked() {
    return stop_asked != 0;
}

int tell(const Error& error) {
    std::cerr << "lockstepd: " << error.message << "\n";
    return error.code == Errc::cancelled ? kInterrupted
           : error.code == Errc::invalid ? kBadCommand
                                         : kCommandFailed;
}

std::string in_words(std::int64_t bytes) {
    constexpr std::int64_t kMiB = 1 << 20;
    return bytes < kMiB ? std::to_string((bytes + 1023) / 1024) + " KiB"
                        : std::to_string((bytes + kMiB / 2) / kMiB) + " MiB";
}

void tell_problem(const std::string& what) {
    std::cerr << what << "\n";
}

std::string contents(const Manifest& manifest) {
    return std::to_string(manifest.database.jobs) + " jobs, " +
           std::to_string(manifest.database.unfinished) + " of them not over; store " +
           in_words(manifest.database_bytes) + ", " + std::to_string(manifest.files) + " files " +
           in_words(manifest.file_bytes) + "; left out " + std::to_string(manifest.left_out) +
           " files " + in_words(manifest.left_out_bytes);
}

int verify(const DaemonSettings& settings) {
    const auto manifest = verify_backup(settings.backup_folder, is_stop_asked, tell_problem);
    if (!manifest) {
        return tell(manifest.error());
    }
    std::cout << settings.backup_folder << " is whole: of "
              << to_rfc3339(manifest->made_at).substr(0, 19) << "Z, " << contents(*manifest)
              << "\n";
    return kCommandDone;
}

int backup(const DaemonSettings& settings) {
    if (settings.backup_verify) {
        return verify(settings);
    }
    BackupPlan plan;
    plan.data = data_directory_of(settings);
    plan.runs = runs_directory_of(settings, plan.data);
    plan.runs_named = !settings.runs_dir.empty();
    plan.to = settings.backup_folder;
    plan.copy = parse_runs_copied(settings.backup_runs).value_or(RunsCopied::logs);
    plan.secrets = settings.backup_secrets;
    const auto made = make_backup(plan, SystemClock{}.wall(), is_stop_asked);
    if (!made) {
        return tell(made.error());
    }
    std::cout << settings.backup_folder << ": " << contents(*made) << "\n";
    return kCommandDone;
}

int restore(const DaemonSettings& settings) {
    if (settings.data_dir.empty()) {
        return tell({Errc::invalid, "restore needs --data-dir: the new data directory"});
    }
    RestorePlan plan;
    plan.from = settings.backup_folder;
    plan.data = data_directory_of(settings);
    if (!settings.runs_dir.empty()) {
        plan.runs = runs_directory_of(settings, plan.data);
    }
    plan.take_over = settings.restore_take_over;
    const auto done = restore_backup(plan, SystemClock{}.wall(), is_stop_asked, tell_problem);
    if (!done) {
        return tell(done.error());
    }
    std::cout << plan.data.string() << ": " << done->manifest.database.jobs << " jobs as of "
              << to_rfc3339(done->manifest.made_at).substr(0, 19) << "Z; " << done->ended
              << " that were not over have been ended here, " << done->followed
              << " are looked for in the scheduler and followed\n";
    if (plan.runs.empty() && done->runs != plan.data / kRunsFolder) {
        std::cout << "The runs are in " << done->runs.string()
                  << " again: start it with --runs-dir " << done->runs.string() << "\n";
    }
    if (done->kept > 0) {
        std::cout << done->kept << " files were there already and have been left as they are\n";
    }
    if (!done->manifest.secrets) {
        std::cout << "The first token and the certificate are not in this backup: the next start "
                     "makes new ones, and other machines need lockstep login again\n";
    }
    return kCommandDone;
}

}  // namespace

std::string relative_to_nothing(const DaemonSettings& settings) {
    std::error_code gone;
    const fs::path here = fs::current_path(gone);
    for (const std::string& path : {settings.data_dir, settings.runs_dir}) {
        if (here.empty() && !path.empty() && path.front() != '/') {
            return path;
        }
    }
    return "";
}

fs::path data_directory_of(const DaemonSettings& settings) {
    return settings.data_dir.empty() ? default_data_directory()
                                     : fs::absolute(settings.data_dir).lexically_normal();
}

fs::path runs_directory_of(const DaemonSettings& settings, const fs::path& data) {
    return settings.runs_dir.empty() ? data / "runs" : fs::absolute(settings.runs_dir);
}

Status settle_copy(Database& database, const DataDirectory& data, const DaemonSettings& settings,
                   UnixMillis now) {
    StorePlace here;
    std::error_code ec;
    here.directory = fs::canonical(data.path(), ec);
    here.database = data.database();
    here.runs = runs_directory_of(settings, data.path());
    here.host = host_name();
    const OnCopy on_copy = settings.take_over ? OnCopy::take_over
                           : settings.as_copy ? OnCopy::own_way
                                              : OnCopy::refuse;
    std::string note;
    const Status settled = settle_place(database, here, on_copy, now, note);
    if (settled && !note.empty()) {
        log::warn("the data directory was a copy", {{"what", note}});
    }
    return settled;
}

int run_command(const DaemonSettings& settings) {
    narrow_umask();
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        std::signal(number, ask_to_stop);
    }
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    return settings.command == "backup" ? backup(settings) : restore(settings);
}

}  // namespace lockstep
