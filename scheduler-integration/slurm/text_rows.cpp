#include "scheduler-integration/slurm/text_rows.hpp"

#include "job/base/text.hpp"

#include <algorithm>
#include <charconv>

namespace lockstep {

// slurm_errno.c, sbatch(1). Those marked * were provoked on Slurm 22.05.8 (tests/unit/slurm).
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

}  // namespace lockstep

namespace lockstep::rows {

std::vector<std::string_view> lines(std::string_view text) {
    std::vector<std::string_view> out;
    while (!text.empty()) {
        const auto end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        if (!line.empty()) {
            out.push_back(line);
        }
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return out;
}

std::optional<std::int64_t> number(std::string_view text) {
    std::int64_t value = 0;
    if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) {
        return std::nullopt;
    }
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    return ec == std::errc{} && end == text.data() + text.size() ? std::optional{value}
                                                                 : std::nullopt;
}

bool printable_bytes(std::string_view text) {
    return std::none_of(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7f;
    });
}

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

bool is_hostlist_text(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
        return is_name_character(c) || c == '[' || c == ']' || c == ',';
    });
}

std::string message(std::string_view err, std::string_view out) {
    constexpr std::size_t kBytes = 1024;
    const auto said = trim(err).empty() ? lines(out) : lines(err);
    std::string text;
    for (std::string_view line : said) {
        line = trim(line);
        // "sbatch: error: text", "sbatch: fatal: text", "sbatch: text".
        const auto colon = line.find(": ");
        if (colon != std::string_view::npos && colon < 16 &&
            std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon),
                        is_name_character)) {
            line.remove_prefix(colon + 2);
        }
        for (const std::string_view level : {"error: ", "fatal: "}) {
            line.remove_prefix(line.starts_with(level) ? level.size() : 0);
        }
        if (line.empty() || text.size() >= kBytes) {
            continue;
        }
        text += text.empty() ? "" : "; ";
        text += line.substr(0, kBytes);
    }
    text.resize(std::min(text.size(), kBytes));
    text = printable(text);
    std::replace(text.begin(), text.end(), '\t', ' ');
    return text;
}

}  // namespace lockstep::rows
