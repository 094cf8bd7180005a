#include "scheduler-integration/slurm/scheduler/attempt_files.hpp"

#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/slurm_doubt.hpp"
#include "scheduler-integration/slurm/slurm_renamed.hpp"
#include "scheduler-integration/slurm/step_daemon_text.hpp"

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kDoubtBytes = 512;

std::string doubt_path(const AttemptRequest& request) {
    return request.kept_in() + "/" + std::string{slurm::kDoubtFileName};
}

constexpr std::size_t kSlurmJobBytes = 64;

std::string slurm_job_path(const AttemptRequest& request) {
    return request.kept_in() + "/" + std::string{slurm::kSlurmJobFileName};
}

// "" if there is none. For a person: cut and printable.
std::string last_line_of(const std::string& path) {
    constexpr std::size_t kTailBytes = 4096;
    constexpr std::size_t kLineBytes = 512;
    const auto text = read_plain_tail(path, kTailBytes);
    std::string_view rest = text ? trim(*text) : std::string_view{};
    rest.remove_prefix(rest.find_last_of('\n') + 1);  // npos + 1 = 0
    return printable(rest.substr(0, kLineBytes));
}

}  // namespace

SlurmAttemptFiles::SlurmAttemptFiles(std::size_t threads, std::string steady_clock)
    : steady_clock_(std::move(steady_clock)), threads_(threads) {}

Task<Status> SlurmAttemptFiles::write_script(slurm::BatchScript script) {
    const std::function<Status()> write = [script = std::move(script)] {
        return replace_file(script.path, script.text, 0700);
    };
    co_return co_await on_thread<Status>(threads_, write);
}

Task<void> SlurmAttemptFiles::keep_doubt(SlurmTrackedPointer tracked) {
    const SlurmDoubt doubt{steady_clock_, tracked->attempt.request.intent_at,
                           tracked->attempt.last_try_end};
    const std::string path = doubt_path(tracked->attempt.request);
    if (doubt.clock.empty()) {
        co_return;
    }
    const std::function<Status()> write = [path, doubt] {
        return replace_file(path, to_text(doubt), 0600);
    };
    const Status written = co_await on_thread<Status>(threads_, write);
    if (!written) {
        log::warn("cannot note since when a submission is in doubt",
                  {{"job", tracked->attempt.request.job.value},
                   {"name", tracked->attempt.name},
                   {"what", written.error().message}});
    }
}

Task<void> SlurmAttemptFiles::take_up_doubt(SlurmTrackedPointer tracked) {
    const SlurmDoubt now{steady_clock_, tracked->attempt.request.intent_at,
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
    const Known earlier = co_await on_thread<Known>(threads_, read);
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

bool SlurmAttemptFiles::note_job(SlurmTracked& tracked) {
    const SlurmAttempt& attempt = tracked.attempt;
    if (attempt.stage != SlurmAttempt::Stage::known || !attempt.seen || attempt.ended() ||
        attempt.seen->submitted_at <= 0 ||
        (tracked.kept.id == attempt.id &&
         tracked.kept.submitted_at == attempt.seen->submitted_at)) {
        return false;
    }
    tracked.kept = {attempt.id, attempt.seen->submitted_at};
    return true;
}

Task<void> SlurmAttemptFiles::write_job(SlurmTrackedPointer tracked) {
    const SlurmAttempt::Copy job = tracked->kept;
    const std::function<Status()> write = [path = slurm_job_path(tracked->attempt.request), job] {
        return replace_file(path, to_text(job), 0600);
    };
    const Status written = co_await on_thread<Status>(threads_, write);
    if (!written && tracked->kept.id == job.id && tracked->kept.submitted_at == job.submitted_at) {
        tracked->kept = {};  // a full disk, say: again with the next answer
    }
}

Task<void> SlurmAttemptFiles::take_up_job(SlurmTrackedPointer tracked) {
    using Known = std::optional<SlurmAttempt::Copy>;
    const std::function<Known()> read = [path = slurm_job_path(tracked->attempt.request)] {
        const auto text = read_plain_file(path, kSlurmJobBytes);
        return text ? parse_slurm_job(*text) : Known{};
    };
    const Known before = co_await on_thread<Known>(threads_, read);
    tracked->attempt.seen_before = before;
    tracked->kept = before.value_or(SlurmAttempt::Copy{});
    tracked->asks_file = false;
}

Task<Status> SlurmAttemptFiles::write_abandoned(const AttemptRequest& request, std::int64_t id) {
    const std::function<Status()> write = [folder = request.kept_in(), id] {
        return replace_file(folder + "/" + std::string{slurm::kAbandonedFileName},
                            std::to_string(id), 0600);
    };
    co_return co_await on_thread<Status>(threads_, write);
}

Task<bool> SlurmAttemptFiles::was_abandoned(const SlurmAttempt& attempt) {
    const std::function<bool()> read = [folder = attempt.request.kept_in(), id = attempt.id] {
        const auto text =
            read_plain_file(folder + "/" + std::string{slurm::kAbandonedFileName}, 64);
        return text && *text == std::to_string(id);
    };
    co_return co_await on_thread<bool>(threads_, read);
}

Task<std::string> SlurmAttemptFiles::last_batch_words(const SlurmAttempt& attempt) {
    const std::function<std::string()> read = [folder = attempt.request.directory] {
        std::string words = last_line_of(folder + "/" + std::string{slurm::kBatchLogName});
        if (words.empty() || words.starts_with("srun: ") || is_step_daemon_line(words)) {
            const std::string agents = last_line_of(folder + "/agent-00000.log");
            words = agents.empty() ? words : agents;
        }
        return words;
    };
    co_return co_await on_thread<std::string>(threads_, read);
}

}  // namespace lockstep
