// What lockstepd can be told, declared once: default < --config FILE < LOCKSTEP_* < flag. Read in
// main, then passed as values. An unknown key stops the start.
#pragma once

#include "job/base/limits.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct DaemonSettings {
    std::string listen = "127.0.0.1:8470";
    std::string agent_listen;     // "" = the same listener
    std::string metrics_listen;   // "" = the same listener
    std::string agent_url;        // "" = where the agents' listener is
    std::string tls = "auto";     // or always: on loopback too
    std::string tls_certificate;  // "" = one of lockstepd's own
    std::string tls_key;
    std::string data_dir;     // "" = $XDG_DATA_HOME/lockstep or ~/.local/share/lockstep
    std::string runs_dir;     // "" = <data-dir>/runs
    std::string agent_path;   // "" = lockstep-agent beside lockstepd
    std::string web_root;     // "" = the web page that was built in
    std::string grafana_url;  // "" = the page has no links to it
    std::string scheduler = "local";
    std::vector<std::string> allowed_hosts;
    std::int64_t metrics_max_series_per_job = 300'000;
    bool metrics_auth = false;         // /metrics needs a token too
    std::string notify_hosts = "any";  // or none, or names with commas
    std::string sendmail;              // "" = /usr/sbin/sendmail if it is there
    std::string remote_write;          // URL of a receiver; "" = none
    std::string remote_write_token_file;
    std::string remote_write_user;
    std::string remote_write_password_file;
    double remote_write_interval = 15;  // seconds
    double remote_write_timeout = 30;   // of one request, seconds
    std::string log_level = "info";
    std::string slurmrestd_url = "http://127.0.0.1:6820";
    std::string slurmrestd_fingerprint;
    std::string slurm_identity = "self";  // or lockstep-exec
    std::string exec_socket = "/run/lockstep-exec.socket";
    bool any_data_dir = false;
    bool shared_account = false;                // of several users
    std::string slurm_bin_dir;                  // "" = found on PATH
    double slurm_poll_seconds = 5;              // while something is about to change
    std::int64_t slurm_quarantine_seconds = 0;  // 0 = the credential's lifetime + 60 s
    double slurm_submit_rate = 20;              // submissions per second
    std::int32_t slurm_queue = 1000;            // attempts handed to Slurm at a time
    std::int32_t user_jobs = static_cast<std::int32_t>(limits::kUserJobs);  // unfinished; 0 = any
    std::int32_t user_submissions =
        static_cast<std::int32_t>(limits::kUserSubmissions);  // a minute
    std::int64_t user_gb = 0;                                 // that jobs of one take; 0 = any
    std::int64_t history_mb = 10'240;                         // chunks of telemetry on disk
    std::int64_t history_days = 30;                           // 0 = whatever their age
    std::int64_t keep_days = 0;                               // jobs that are over; 0 = for ever
    std::int64_t keep_gb = 0;                                 // that they may take; 0 = any
    bool slurm_gres = false;           // --gres=gpu:N instead of --gpus-per-node
    std::int32_t local_cores = 0;      // 0 = as the machine has
    std::int64_t local_memory_mb = 0;  // 0 = as the machine has
    std::int32_t local_gpus = -1;      // -1 = as the machine has

    // After an attempt's end, until what Slurm still has of it is cancelled.
    std::int64_t slurm_leave_seconds = 60;
    std::string on_external_cancel = "resubmit";  // or fail
    std::string on_slurm_node_fail = "keep";      // or end

    // Of a data directory that is a copy of another one; for one start, so neither of the file nor
    // of the environment.
    bool take_over = false;
    bool as_copy = false;

    // The commands; "" = serve.
    std::string command{};             // backup or restore
    std::string backup_folder{};       // of either
    std::string backup_runs = "logs";  // none or all
    bool backup_secrets = false;
    bool backup_verify = false;
    bool restore_take_over = false;

    bool print_manual = false;     // hidden: for the build
    std::string print_completion;  // hidden: bash, zsh or fish
};

// Adds every setting to `app` (flag, environment variable, key of the file).
void declare(CLI::App& app, DaemonSettings& settings);

// What is wrong with the file of --config, in words; "" of another error.
std::string wrong_with_file(const CLI::App& app, const CLI::ParseError& error);

// lockstepd(8) and the shells' completions, from the same declarations: what the build installs.
std::string manual(const CLI::App& app);
std::string completion(const CLI::App& app, const std::string& shell);

}  // namespace lockstep
