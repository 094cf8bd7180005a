#include "scheduler-integration/slurm/slurm_errors.hpp"

#include "scheduler-integration/slurm/text_rows.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

struct SlurmErrorRow {
    std::int64_t number;  // 0: none, a command says it
    std::string_view sentence;
    SlurmError error;
};

// In the order in which a text is searched.
constexpr std::array kSlurmErrorRows{
    SlurmErrorRow{2017, "Invalid job id", SlurmError::no_such_job},  // *
    SlurmErrorRow{2081, "Invalid job array", SlurmError::no_such_job},
    SlurmErrorRow{2010, "Invalid user", SlurmError::no_such_job},
    SlurmErrorRow{2021, "Job/step already completing or completed", SlurmError::already_over},
    SlurmErrorRow{2002, "Access/permission denied", SlurmError::denied},  // *
    SlurmErrorRow{1007, "Protocol authentication error", SlurmError::unauthenticated},
    SlurmErrorRow{6000, "Invalid authentication credential", SlurmError::unauthenticated},
    SlurmErrorRow{0, "Authentication credential expired", SlurmError::unauthenticated},
    SlurmErrorRow{9003, "Nothing found", SlurmError::nothing_found},  // *
    SlurmErrorRow{-1, "Unspecified error", SlurmError::unspecified},  // *
    SlurmErrorRow{0, "unrecognized option", SlurmError::argument_unknown},
    SlurmErrorRow{0, "Invalid option", SlurmError::argument_unknown},
    SlurmErrorRow{0, "Invalid time specification", SlurmError::argument_unknown},
};

}  // namespace

SlurmError slurm_error_of(std::int64_t number) {
    const auto row =
        std::find_if(kSlurmErrorRows.begin(), kSlurmErrorRows.end(),
                     [number](const auto& one) { return one.number != 0 && one.number == number; });
    return row == kSlurmErrorRows.end() ? SlurmError::other : row->error;
}

SlurmError slurm_error_in(std::string_view text) {
    const auto row = std::find_if(
        kSlurmErrorRows.begin(), kSlurmErrorRows.end(),
        [text](const auto& one) { return text.find(one.sentence) != std::string_view::npos; });
    return row == kSlurmErrorRows.end() ? SlurmError::other : row->error;
}

bool admits_failure(std::string_view printed) {
    return rows::contains_any(
        printed, {"slurm_load_jobs error", "Unable to contact slurm controller", "Socket timed out",
                  "Problem talking to the database"});
}

// Those marked *, here and above, were provoked on Slurm 22.05.8 (tests/unit/slurm).
const std::vector<std::string_view> kAmbiguousTexts{
    "Socket timed out",  // *
    "Zero Bytes were transmitted",
    "(send failure)",
    "(receive failure)",
    "(shutdown failure)",
    "Message receive failure",
    "Message send failure",
    "Connection reset",
    "Broken pipe",
    "timed out writing",
    "timed out reading",
    "Unexpected message received",
    "Header lengths are longer",
    "Insane message length",
    "Resource temporarily unavailable",
    "Transport endpoint",
    "Interrupted system call",
};

const std::vector<std::string_view> kNotSubmittedTexts{
    "Unable to contact slurm controller (connect failure)",  // *
    "Communication connection failure",
    "Connection refused",
    "Connection timed out establishing",
    "Rate limit exceeded",
    "backup controller in standby mode",
    "Controller is in standby mode",
    "Could not establish a configuration source",  // *
    "Unable to process configuration file",        // *
    "Incompatible versions of client and server code",
    "Protocol authentication error",
    "Invalid authentication credential",
    "Authentication credential expired",
    "Munge encode failed",
    "Error generating job credential",
    "I/O error writing script/environment to file",
    "MaxJobCount limit reached",
    "System submissions disabled",
    "Process is shutting down",
};

const std::vector<std::string_view> kRejectedTexts{
    // Of sbatch, before anything is sent.
    "Invalid --",           // * "Invalid --time specification"
    "unrecognized option",  // *
    "requires an argument",
    "invalid option",
    "is ambiguous",
    "Unable to open file",                                            // *
    "This does not look like a batch script",                         // *
    "Batch script is empty",                                          // *
    "Batch script contains DOS line breaks",                          // *
    "is less than minimum node count",                                // *
    "invalid number of nodes (-N ",                                   // * a longer --nodelist
    "can't be reached now, or it is an invalid entry for --cluster",  // *
    "No cluster '",                                                   // *
    "Batch script is longer than",
    // Of slurmctld.
    "Invalid partition name specified",  // *
    "No partition specified or system default partition",
    "Access/permission denied",
    "User's group not permitted to use this partition",
    "Requested nodes not in this partition",
    "More processors requested than permitted",
    "Node count specification invalid",
    "Job size specification needs to be provided",
    "Job script not specified",
    "Invalid user id",
    "Invalid group id",
    "Pathname of a file, directory or other parameter too long",  // *
    "Requested node configuration is not available",              // *
    "Requested partition configuration not available now",
    "Required partition not available (inactive or drain)",  // *
    "Partition in DOWN state",
    "Required node not available (down, drained or reserved)",
    "Invalid node name specified",    // *
    "Invalid feature specification",  // *
    "Invalid preferred feature specification",
    "Invalid job array specification",                // *
    "Invalid generic resource (gres) specification",  // *
    "Invalid GRES specification",
    "Duplicate generic resource (gres) specification",
    "Requested GRES option unsupported",
    "Invalid Trackable RESource (TRES) specification",
    "Invalid license specification",  // *
    "Invalid account or account/partition combination specified",
    "Invalid or unknown association",
    "Invalid qos specification",
    "Invalid QOS specification",
    "Invalid wckey specification",
    "Job violates accounting/QOS policy",
    "Requested account has breached requested QOS usage threshold",
    "Requested time limit is invalid (missing or exceeds some limit)",  // *
    "Invalid time-min specification",
    "Invalid time specified",
    "Access denied to requested reservation",
    "Requested reservation is invalid",  // *
    "Requested reservation not usable now",
    "Task count specification invalid",
    "Task distribution specification invalid",
    "CPU count specification invalid",
    "Memory required by task is not available",
    "Job dependency problem",  // *
    "Circular job dependency",
    "Job --batch option is invalid",
    "Cannot request more threads per core than the job allocation",
    "Multiple partition job request not supported",
    "Job cannot be submitted without the current working directory specified",
    "Burst Buffer request invalid",
    "Burst Buffer permission denied",
    "Burst Buffer resource limit exceeded",
    "Invalid mcs_label specified",
    "Requested operation not supported on this system",
    "No eligible clusters for federated job",
    "RestrictedCoresPerGPU:",
    "Requested topology configuration is not available",
    "Requires more ports than can be reserved",
};

const std::vector<std::string_view> kSubmitLimitTexts{"MaxSubmitJob", "GrpSubmitJob"};

const std::vector<std::string_view> kSbatchsOwnTexts{
    "Batch job submission failed: ", "sbatch: error: ", "sbatch: fatal: "};

std::string_view field_of_refusal(std::string_view text) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kFields{{
        {"invalid number of nodes (-N ", "/slurm/nodelist"},
        {"nvalid account", "/slurm/account"},
        {"nvalid qos", "/slurm/qos"},
        {"nvalid partition", "/slurm/partition"},
        {"Requested partition", "/slurm/partition"},
        {"nvalid feature", "/slurm/constraint"},
        {"eservation is invalid", "/slurm/reservation"},
        {"nvalid node name", "/slurm/nodelist"},
        {"time limit is invalid", "/resources/time_limit"},
        {"node configuration is not available", "/resources"},
    }};
    for (const auto& [sentence, pointer] : kFields) {
        if (text.find(sentence) != std::string_view::npos) {
            return pointer;
        }
    }
    return "";
}

}  // namespace lockstep
