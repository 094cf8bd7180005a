#include "scheduler-integration/slurm/slurm_doubt.hpp"

#include "job/base/files.hpp"
#include "job/base/text.hpp"

#include <filesystem>
#include <system_error>
#include <vector>

namespace lockstep {
namespace {

using Steady = std::chrono::steady_clock;

}  // namespace

std::string steady_clock_name() {
    const auto boot = read_file("/proc/sys/kernel/random/boot_id", 64);
    if (!boot || trim(*boot).empty()) {
        return {};
    }
    std::string out{trim(*boot)};
    std::error_code none;  // a kernel before 5.6 has no such namespaces
    const auto shifted = std::filesystem::read_symlink("/proc/self/ns/time", none);
    return none ? out : out + "/" + shifted.string();
}

std::string to_text(const SlurmDoubt& doubt) {
    const auto since =
        std::chrono::duration_cast<std::chrono::nanoseconds>(doubt.last_try_end.time_since_epoch());
    return doubt.clock + "\n" + std::to_string(doubt.intent_at) + "\n" +
           std::to_string(since.count()) + "\n";
}

std::optional<SlurmDoubt> parse_doubt(std::string_view text) {
    std::vector<std::string_view> lines;
    for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
        lines.push_back(text.substr(0, end));
        text.remove_prefix(end + 1);
    }
    if (lines.size() != 3 || !text.empty()) {
        return std::nullopt;
    }
    const auto intent = to_int(lines[1]);
    const auto since = to_int(lines[2]);
    if (!intent || !since) {
        return std::nullopt;
    }
    SlurmDoubt out;
    out.clock = lines[0];
    out.intent_at = *intent;
    out.last_try_end = Steady::time_point{
        std::chrono::duration_cast<Steady::duration>(std::chrono::nanoseconds{*since})};
    return out;
}

}  // namespace lockstep
