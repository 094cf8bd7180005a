// What the command line accepts: declared once, for the parser, the man page and the completions.
// Values only; the main thread.
#pragma once

#include "job/base/limits.hpp"
#include "job/base/result.hpp"
#include "job/cli/manual.hpp"
#include "job/cli/placement.hpp"

#include <CLI/App.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

// How the program ends; part of the interface (man page, job/README.md).
enum class Exit : int {
    ok = 0,
    job_failed = 1,  // --wait and --follow
    usage = 2,       // wrong arguments, or the daemon refused the specification
    not_found = 3,
    unreachable = 4,  // no daemon answers, or it cannot at the moment
    denied = 5,
    conflict = 6,
    cancelled = 7,    // --wait and --follow: the job was cancelled
    not_written = 8,  // standard output, an export: the caller's own disk
    interrupted = 130,
};
Exit exit_code(Errc code);

// `run`. 0, "" and nothing = not given.
struct RunOptions {
    std::int64_t nodes = 0;
    std::int64_t min_nodes = 0;  // 0: not said
    std::int64_t ranks_per_node = 0;
    std::int64_t gpus_per_node = 0;
    std::int64_t ranks_per_gpu = 0;  // 0: one
    std::int64_t cpus_per_rank = 0;
    std::optional<std::int64_t> max_restarts;  // 0 is an answer: with min_nodes others follow
    std::string partition;
    Placement placement;
    std::vector<std::string> sbatch;  // OPTION=VALUE, further options of sbatch
    std::string gpu_type;
    std::string memory;  // of a node, as in 64G
    std::string time_limit;
    std::string name;
    std::string directory;
    std::string setup;
    std::string framework;
    std::string launch;
    std::string output;                    // file for the specification
    std::vector<std::string> environment;  // NAME=VALUE, or NAME
    std::vector<std::string> secrets;      // names
    std::vector<std::string> notify;       // targets, as in the specification
    std::vector<std::string> labels;       // NAME=VALUE
    std::vector<std::string> sweep;        // NAME=VALUE,VALUE
    std::int64_t max_parallel = 0;         // jobs of the sweep at once; 0 = all
    std::vector<std::string> command;
    bool exclusive = false;  // no other job on its nodes
    bool bare = false;       // without the caller's environment
    bool snapshot = false;
    bool detach = false;
    bool logs = false;
    bool dry_run = false;
};

// Jobs that `jobs` and `du` show if nothing else is asked for.
inline constexpr std::int64_t kListed = 20;

struct Options {
    RunOptions run;
    // where the daemon is and who asks
    std::string url;
    std::string token_file;
    std::string fingerprint;  // of an https daemon's certificate, as given
    std::string config;
    std::string data_dir;
    std::vector<std::string> general;  // of these and --json those that were typed: typed.hpp
    // submit
    std::string file;
    std::string idempotency_key;  // restart and checkpoint, too
    // jobs, du
    std::string state;
    std::string user;
    std::string name;
    std::string label;
    std::string search;  // words, between blanks
    std::string sweep;
    std::int64_t limit = kListed;
    // one job
    std::string id;
    std::vector<std::string> ids;  // rm, du
    std::string older_than;        // rm; "" = only those named
    std::string rank;              // logs; "" = 0, or with --failed those that failed
    std::int64_t log_attempt = 0;  // logs; 0 = all from the newest on
    std::int64_t tail = 0;         // 0 = from the beginning
    std::string since;             // logs; "" = all
    std::string grep;              // logs: RE2; "" = all
    std::string evidence_rank;     // "" = all
    std::string what;              // of the evidence; "" = all
    std::string output;            // profile: a folder
    std::int64_t profile_seconds = limits::kProfileSecondsUsual;
    std::string metric;
    std::string ranks;
    std::string partition;
    // nodes
    std::string nodes_action;  // check, a node's name; "" = all of them
    Placement placement;
    std::string time_limit;
    std::int64_t nodes = 1;
    std::int64_t gpus = 0;  // a node
    std::string x;          // "" = step, or time if the range is one of times
    std::string from;       // series; "" = all
    std::string to;
    std::string sort;             // top; "" = busy, or step where no rank has that
    double interval_seconds = 1;  // top
    std::int64_t points = 0;      // 0 = what fits
    // export; the ranks are `ranks`
    std::string tensorboard;
    std::string csv;
    std::string json_lines;
    std::vector<std::string> metrics;
    // token; the user is `user`
    std::string token_action;
    std::string token;  // name or id
    // secret
    std::string secret_action;
    std::string secret;       // its name
    std::string secret_file;  // with the value
    bool secret_from_env = false;
    bool forget = false;  // slurm-token, login
    std::string role;
    std::vector<std::string> scopes;
    std::string expires;
    // login
    std::string login_url;
    // completion
    std::string shell;
    std::string field;  // explain: "" = all
    std::string page;   // manual: job, or lockstep(1)
    // flags, of the verb or verbs behind each
    bool json = false;              // every read
    bool wait = false;              // submit, follow
    bool follow = false;            // submit
    bool all = false;               // jobs, token
    bool whole_sweep = false;       // cancel
    bool quiet = false;             // jobs
    bool log_follow = false;        // logs, events
    bool timestamps = false;        // logs
    bool failed = false;            // logs
    bool watch = false;             // ranks
    bool once = false;              // top
    bool reverse = false;           // top
    bool now = false;               // evidence
    bool last = false;              // profile
    bool cpu_test = false;          // nodes check
    bool gpu_test = false;          // nodes check
    bool pair_test = false;         // nodes check
    bool nccl_test = false;         // nodes check
    bool overwrite = false;         // export
    bool of_gpus = false;           // export
    bool environment = false;       // show
    bool print_url = false;         // open
    bool yes = false;               // rm
    bool dry_run = false;           // rm
    bool keep_checkpoints = false;  // rm
};

// Declares every option and verb on `app`; they write into `options`, which must outlive the app.
void declare(CLI::App& app, Options& options);
// What the man page says beyond the options.
ManualText manual_text();

}  // namespace lockstep::cli
