#include "scheduler-integration/slurm/slurm_doubt.hpp"

#include "job/async/on_thread.hpp"
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/slurm_scheduler.hpp"

#include <filesystem>
#include <functional>
#include <system_error>
#include <vector>

namespace lockstep {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::size_t kDoubtBytes = 512;

std::string doubt_path(const AttemptRequest& request) {
    return request.kept_in() + "/" + std::string{slurm::kDoubtFileName};
}

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

// Of a try of this daemon's that has ended. Without the file the next daemon waits for the whole
// time.
Task<void> SlurmScheduler::keep_doubt(SlurmTrackedPointer tracked) {
    const SlurmDoubt doubt{options_.steady_clock, tracked->attempt.request.intent_at,
                           tracked->attempt.last_try_end};
    const std::string path = doubt_path(tracked->attempt.request);
    if (doubt.clock.empty()) {
        co_return;
    }
    const std::function<Status()> write = [path, doubt] {
        return replace_file(path, to_text(doubt), 0600);
    };
    const Status written = co_await on_thread<Status>(files_, write);
    if (!written) {
        log::warn("cannot note since when a submission is in doubt",
                  {{"job", tracked->attempt.request.job.value},
                   {"name", tracked->attempt.name},
                   {"what", written.error().message}});
    }
}

// Of an earlier daemon's try. The first daemon after one that could not write it does: nothing was
// sent after its own start. A store that was restored from a backup does not know the tries that
// came after it, and believes no file.
Task<void> SlurmScheduler::take_up_doubt(SlurmTrackedPointer tracked) {
    const SlurmDoubt now{options_.steady_clock, tracked->attempt.request.intent_at,
                         tracked->attempt.last_try_end};
    if (now.clock.empty() || !tracked->attempt.request.follow_only.empty()) {
        co_return;
    }
    using Known = std::optional<SlurmDoubt>;
    const std::function<Known()> read = [path = doubt_path(tracked->attempt.request), now] {
        const auto text = read_plain_file(path, kDoubtBytes);
        Known earlier = text ? parse_doubt(*text) : Known{};
        if (earlier && (earlier->clock != now.clock || earlier->intent_at != now.intent_at ||
                        earlier->last_try_end > now.last_try_end)) {
            earlier.reset();
        }
        return earlier;
    };
    const Known earlier = co_await on_thread<Known>(files_, read);
    // Unless a try of this daemon's has ended meanwhile.
    if (tracked->attempt.last_try_end != now.last_try_end) {
        co_return;
    }
    if (earlier) {
        tracked->attempt.last_try_end = earlier->last_try_end;
    } else {
        co_await keep_doubt(tracked);
    }
}

}  // namespace lockstep
