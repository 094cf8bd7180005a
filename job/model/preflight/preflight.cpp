#include "job/model/preflight/preflight.hpp"

#include "job/base/text.hpp"
#include "job/model/preflight/preflight_devices.hpp"
#include "job/model/spec/framework.hpp"
#include "job/model/state.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace lockstep {
namespace {

constexpr std::int64_t kOpenFiles = 4096;   // sockets of NCCL, files of the loader
constexpr std::int64_t kShmMbPerRank = 16;  // NCCL's and the loader's buffers
constexpr std::int64_t kRoomMb = 512;       // less: no checkpoint of use fits
constexpr std::int64_t kNoRoomMb = 4;       // less: not even logs
constexpr std::int64_t kClockWarnMs = 50;   // events of two nodes come out of order
constexpr std::int64_t kClockFailMs = 5'000;
constexpr std::int64_t kSlowCpuFactor = 2;  // times the median of the CPU tests
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
// What is expected of a path that did not answer; by this such a finding is told from the others.
constexpr std::string_view kAnswerInTime = "an answer in time";
// What the ranks of a job must have in common to meet at all.
constexpr std::array<std::string_view, 5> kMustAgree{"nccl", "torch", "code", "container",
                                                     "lockstep"};

struct Report {
    const PreflightNode& node;
    std::vector<PreflightFinding>& out;

    void add(std::string_view check, std::string found, std::string expected, bool fails) const {
        out.push_back({node.slot, node.node, std::string{check}, std::move(found),
                       std::move(expected), fails});
    }
};

bool is_link_local(std::string_view address) {
    return address.starts_with("169.254.") || address.starts_with("fe8") ||
           address.starts_with("fe9") || address.starts_with("fea") || address.starts_with("feb");
}

bool is_loopback(std::string_view address) {
    return address.starts_with("127.") || address == "::1";
}

std::string first_of(const std::vector<std::string>& items, std::size_t most = 4) {
    std::string out;
    for (std::size_t i = 0; i < items.size() && i < most; ++i) {
        out += (i == 0 ? "" : ", ") + items[i];
    }
    return items.size() > most ? out + " and " + std::to_string(items.size() - most) + " more"
                               : out;
}

// Other nodes would reach themselves at such an address, or no one.
void check_hostname(const Report& report, const NodeFacts& facts) {
    const std::string given =
        facts.addresses.empty() ? std::string{"none"} : facts.addresses.front().address;
    const std::string expected = "an address that other nodes reach; Lockstep gives out " + given;
    if (facts.hostname.empty()) {
        return;
    }
    const std::string who = "host name " + facts.hostname;
    if (!facts.hostname_answered) {
        report.add("hostname", who + ": the resolver did not answer in time", expected, false);
        return;
    }
    if (facts.hostname_addresses.empty()) {
        report.add("hostname", who + " does not resolve", expected, false);
        return;
    }
    const bool good = std::any_of(facts.hostname_addresses.begin(), facts.hostname_addresses.end(),
                                  [&](const auto& a) {
                                      // With all nodes on one machine loopback is what they are
                                      // reached at.
                                      return a == given || (!is_loopback(a) && !is_link_local(a));
                                  });
    if (!good) {
        report.add("hostname", who + " resolves to " + first_of(facts.hostname_addresses), expected,
                   false);
    }
}

void check_clock(const Report& report, const NodeFacts& facts) {
    const std::int64_t off = std::abs(facts.clock_offset_ms) - facts.clock_error_ms;
    if (facts.clock_known && off > kClockWarnMs) {
        report.add("clock",
                   "its clock is " + std::to_string(std::abs(facts.clock_offset_ms)) + " ms " +
                       (facts.clock_offset_ms < 0 ? "behind" : "ahead"),
                   "at most " + std::to_string(kClockWarnMs) + " ms from the daemon's (over " +
                       std::to_string(kClockFailMs / 1000) + " s it fails)",
                   off > kClockFailMs);
    }
}

void check_limits(const Report& report, const NodeFacts& facts, const JobSpec& spec) {
    if (facts.open_files >= 0 && facts.open_files < kOpenFiles) {
        report.add("open_files", "at most " + std::to_string(facts.open_files) + " open files",
                   "at least " + std::to_string(kOpenFiles) + " (ulimit -n)",
                   facts.open_files < 256);
    }
    if (facts.rdma && facts.memlock_kb >= 0 && facts.memlock_kb != kUnlimited) {
        report.add("memlock", "at most " + std::to_string(facts.memlock_kb) + " KiB locked memory",
                   "unlimited, for its RDMA devices (ulimit -l)", false);
    }
    if (facts.somaxconn >= 0 && facts.somaxconn < spec.resources.nodes) {
        report.add("somaxconn", "net.core.somaxconn is " + std::to_string(facts.somaxconn),
                   "at least the job's " + std::to_string(spec.resources.nodes) + " nodes", false);
    }
    if (!facts.ports_problem.empty()) {
        report.add("ports", "no ports for its ranks: " + facts.ports_problem,
                   std::to_string(std::max(facts.ports_needed, 1)) + " free TCP ports", true);
    }
}

std::string name_of(std::string_view use) {
    std::string out{use};
    std::replace(out.begin(), out.end(), '_', ' ');
    return out;
}

void check_room(const Report& report, const PathFact& path, const JobSpec& spec) {
    if (path.free_mb < 0) {
        return;
    }
    const std::string free = std::to_string(path.free_mb) + " MiB free in " + path.path;
    if (path.use == kPathShm) {
        const std::int64_t need = kShmMbPerRank * spec.resources.ranks_per_node;
        if (spec.resources.ranks_per_node > 1 && path.free_mb < need) {
            report.add("shm", free,
                       "at least " + std::to_string(need) + " MiB, " +
                           std::to_string(kShmMbPerRank) + " per rank",
                       false);
        }
    } else if ((path.use == kPathAttempt || path.use == kPathCheckpoint) &&
               path.free_mb < kRoomMb) {
        report.add("disk", free, "at least " + std::to_string(kRoomMb) + " MiB",
                   path.free_mb < kNoRoomMb);
    }
}

void check_path(const Report& report, const PathFact& path, const JobSpec& spec) {
    const bool needed =
        path.use == kPathWorking || path.use == kPathCheckpoint || path.use == kPathAttempt;
    const std::string expected = path.use == kPathCheckpoint ? "a directory that can be written to"
                                                             : "a directory that can be entered";
    const std::string name = name_of(path.use);
    if (!path.answered) {
        report.add(path.use, name + " does not answer: " + path.path, std::string{kAnswerInTime},
                   needed);
        return;
    }
    const bool absent = path.error == ENOENT || path.error == ENOTDIR;
    if (path.use == kPathMount || path.use == kPathShm) {
        if (path.error != 0 && !absent) {
            report.add(path.use, name + " " + path.path + ": " + std::strerror(path.error),
                       "a file system that can be used", false);
        }
    } else if (absent && path.use == kPathWorking) {
        report.add(path.use, name + " does not exist: " + path.path, expected, true);
    } else if (path.error != 0) {
        report.add(path.use,
                   name + " cannot be used: " + path.path + ": " + std::strerror(path.error),
                   expected, true);
    } else if (path.use == kPathWorking && (!path.directory || !path.enter)) {
        report.add(path.use, name + " cannot be entered: " + path.path, expected, true);
    } else if (path.use == kPathCheckpoint && (!path.directory || !path.write)) {
        report.add(path.use, name + " cannot be written to: " + path.path, expected, true);
    }
    check_room(report, path, spec);
}

// "2.30.7" is at least 2.30.
bool is_at_least(std::string_view version, std::int64_t major, std::int64_t minor) {
    const auto parts = split(version, '.');
    const auto first = to_int(parts.front());
    const auto second = parts.size() > 1 ? to_int(parts[1]) : std::nullopt;
    return first && second && (*first > major || (*first == major && *second >= minor));
}

// NCCL refuses several ranks on a GPU before 2.30, in words that do not say so. A program that is
// not a framework's in Python may load another one than the system's: then it is only a warning.
void check_shared_gpu_nccl(const Report& report, const NodeFacts& facts, const JobSpec& spec) {
    const auto nccl = facts.versions.find("nccl");
    if (spec.resources.ranks_per_gpu > 1 && nccl != facts.versions.end() &&
        !is_at_least(nccl->second, 2, 30)) {
        report.add("versions", "its NCCL is " + nccl->second,
                   "2.30 or newer, for the ranks that share a GPU (resources.ranks_per_gpu)",
                   spec.framework != Framework::command && spec.framework != Framework::native);
    }
}

void check_gpus(const Report& report, const NodeFacts& facts, const JobSpec& spec) {
    const std::int32_t want = spec.resources.gpus_per_node;
    for (const std::string& fault : facts.gpu.faults) {
        const bool other = is_of_other_gpu(fault, facts.gpu, want);
        report.add("gpu", fault, other ? "none; it is no GPU of the job's" : "a healthy GPU",
                   want > 0 && !other);
    }
    for (const std::string& doubt : facts.gpu.doubts) {
        report.add("gpu", doubt, "a GPU that nothing else uses and that reports nothing", false);
    }
    if (want > 0 && facts.gpu.count < want) {
        report.add("gpu",
                   facts.gpu.driver ? std::to_string(facts.gpu.count) + " GPUs"
                                    : std::string{"no NVIDIA driver"},
                   std::to_string(want) + " GPUs, as resources.gpus_per_node asks",
                   facts.gpu.driver);
    }
    if (!facts.cpu_test_problem.empty()) {
        report.add("cpu_test", "the test with the native trainer failed: " + facts.cpu_test_problem,
                   "an end with code 0", true);
    }
}

// The value that most nodes have; with a tie that of the lowest slot.
std::string majority(const std::vector<std::string>& values, std::size_t& votes) {
    std::map<std::string, std::size_t> count;
    for (const std::string& value : values) {
        ++count[value];
    }
    std::string best;
    votes = 0;
    for (const std::string& value : values) {
        if (count[value] > votes) {
            votes = count[value];
            best = value;
        }
    }
    return best;
}

std::string title(std::string_view key) {
    return key == "nccl"     ? "NCCL"
           : key == "cuda"   ? "CUDA"
           : key == "code"   ? "commit of the working directory"
           : key == "driver" ? "NVIDIA driver"
                             : std::string{key};
}

// Its ranks meet by what they are made with; of another framework in the same environment they may
// know nothing.
bool must_agree(const JobSpec& spec, std::string_view key) {
    const auto must = traits_of(spec.framework).must_agree;
    return std::find(kMustAgree.begin(), kMustAgree.end(), key) != kMustAgree.end() ||
           (must != nullptr ? must(spec, key) : key == to_string(spec.framework));
}

void compare_version(const std::vector<PreflightNode>& nodes, const std::string& key,
                     const JobSpec& spec, std::vector<PreflightFinding>& out) {
    std::vector<std::string> values;
    for (const PreflightNode& node : nodes) {
        const auto found = node.facts.versions.find(key);
        values.push_back(found == node.facts.versions.end() ? "" : found->second);
    }
    std::size_t votes = 0;
    const std::string usual = majority(values, votes);
    const bool must = spec.preflight.require_same_versions && must_agree(spec, key);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (values[i] == usual) {
            continue;
        }
        const auto shown = [](const std::string& value) {
            return value.empty() ? std::string{"none"} : value;
        };
        const Report report{nodes[i], out};
        // What one node has and another not may only have been looked for in the wrong place.
        report.add("versions", "its " + title(key) + " is " + shown(values[i]),
                   shown(usual) + ", as " + std::to_string(votes) + " of " +
                       std::to_string(nodes.size()) + " nodes have",
                   must && !values[i].empty() && !usual.empty());
    }
}

void compare_cpu_tests(const std::vector<PreflightNode>& nodes,
                       std::vector<PreflightFinding>& out) {
    std::vector<std::int64_t> times;
    for (const PreflightNode& node : nodes) {
        if (node.facts.cpu_test_ms >= 0 && node.facts.cpu_test_problem.empty()) {
            times.push_back(node.facts.cpu_test_ms);
        }
    }
    if (times.size() < 2) {
        return;
    }
    // Of two the faster one: the lower median.
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
    std::nth_element(times.begin(), middle, times.end());
    const std::int64_t median = std::max<std::int64_t>(*middle, 1);
    for (const PreflightNode& node : nodes) {
        if (node.facts.cpu_test_problem.empty() &&
            node.facts.cpu_test_ms > kSlowCpuFactor * median) {
            const Report report{node, out};
            report.add("cpu_test",
                       "the test with the native trainer took " +
                           std::to_string(node.facts.cpu_test_ms) + " ms",
                       "at most " + std::to_string(kSlowCpuFactor) +
                           " × the median of the nodes, " + std::to_string(median) + " ms",
                       true);
        }
    }
}

}  // namespace

std::vector<PreflightFinding> check_node(const PreflightNode& node, const JobSpec& spec) {
    std::vector<PreflightFinding> out;
    const Report report{node, out};
    if (spec.resources.allocated_nodes() > 1) {
        check_hostname(report, node.facts);
    }
    check_clock(report, node.facts);
    check_limits(report, node.facts, spec);
    for (const PathFact& path : node.facts.paths) {
        check_path(report, path, spec);
    }
    check_gpus(report, node.facts, spec);
    check_shared_gpu_nccl(report, node.facts, spec);
    check_gpu_health(node, spec, out);
    check_gpu_test(node, spec, out);
    check_nics(node, spec, out);
    return out;
}

std::vector<PreflightFinding> compare_nodes(const std::vector<PreflightNode>& nodes,
                                            const JobSpec& spec) {
    std::vector<PreflightFinding> out;
    std::set<std::string> keys;
    for (const PreflightNode& node : nodes) {
        for (const auto& [key, value] : node.facts.versions) {
            keys.insert(key);
        }
    }
    for (const std::string& key : keys) {
        compare_version(nodes, key, spec, out);
    }
    std::vector<std::string> counts;
    counts.reserve(nodes.size());
    for (const PreflightNode& node : nodes) {
        counts.push_back(std::to_string(node.facts.gpu.count));
    }
    std::size_t votes = 0;
    const std::string usual = majority(counts, votes);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (counts[i] != usual) {
            const Report report{nodes[i], out};
            report.add("gpu", counts[i] + " GPUs",
                       usual + ", as " + std::to_string(votes) + " of " +
                           std::to_string(nodes.size()) + " nodes have",
                       false);
        }
    }
    compare_gpu_models(nodes, spec, out);
    compare_nvlinks(nodes, spec, out);
    compare_nics(nodes, spec, out);
    compare_cpu_tests(nodes, out);
    compare_gpu_tests(nodes, spec, out);
    return out;
}

CauseClass preflight_cause(const PreflightFinding& finding, bool on_every_node) {
    if (finding.check.starts_with("gpu") || finding.check == "nvlink") {
        return CauseClass::gpu_fault;
    }
    const bool named = (finding.check == kPathWorking || finding.check == kPathCheckpoint) &&
                       finding.expected != kAnswerInTime;
    return named && on_every_node ? CauseClass::user_error : CauseClass::node_lost;
}

std::string words_of(const PreflightFinding& finding) {
    return finding.node + ": " + finding.found + "; expected " + finding.expected;
}

}  // namespace lockstep
