#include "scheduler-integration/slurm/slurm_users.hpp"

#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kBeginAgain = std::chrono::seconds{30};

Observation unreachable(std::string why) {
    Observation out;
    out.kind = Observation::Kind::unreachable;
    out.message = std::move(why);
    return out;
}

}  // namespace

SlurmUsers::SlurmUsers(net::io_context& io, const Clock& clock, MakeBackend make_backend,
                       SlurmScheduler::Options options, std::filesystem::path token_folder)
    : io_(io),
      clock_(clock),
      make_backend_(std::move(make_backend)),
      options_(std::move(options)),
      tokens_(clock, std::move(token_folder)),
      tasks_(io) {
    options_.idle_most = limits::kIdleUser;
    nobody_ = make("");
}

SlurmUsers::SlurmUsers(net::io_context& io, const Clock& clock, MakeBackend make_backend,
                       SlurmScheduler::Options options, std::shared_ptr<SlurmSigners> signers)
    : io_(io),
      clock_(clock),
      make_backend_(std::move(make_backend)),
      options_(std::move(options)),
      tokens_(clock, {}),
      signers_(std::move(signers)),
      tasks_(io) {
    options_.idle_most = limits::kIdleUser;
    nobody_ = make("");
}

Status SlurmUsers::usable(const std::string& user) const {
    return signers_ ? Status{} : tokens_.usable(user);
}

std::unique_ptr<SlurmScheduler> SlurmUsers::make(const std::string& name) {
    return std::make_unique<SlurmScheduler>(
        io_, clock_, make_backend_(name, [this, name] { return tokens_.get(name); }), options_);
}

Task<Status> SlurmUsers::begin() {
    Status begun;
    if (signers_) {
        begun = co_await nobody_->begin();  // what anybody may ask
    } else {
        tokens_.load();
    }
    for (const std::string& name : signers_ ? signers_->users() : tokens_.users()) {
        user_of(name);
    }
    co_return begun;
}

void SlurmUsers::know_ends(EndOf end_of) {
    end_of_ = std::move(end_of);
    for (const auto& [name, user] : users_) {
        user.scheduler->know_ends(end_of_);
    }
}

Task<void> SlurmUsers::stop() {
    stopped_ = true;
    for (auto& [name, user] : users_) {
        user.retry->cancel();
        co_await user.scheduler->stop();
    }
    co_await nobody_->stop();
    co_await tasks_.join();
}

SlurmUsers::User& SlurmUsers::user_of(const std::string& name) {
    const auto found = users_.find(name);
    if (found != users_.end()) {
        return found->second;
    }
    User& user = users_[name];
    user.scheduler = make(name);
    user.retry = std::make_unique<net::steady_timer>(io_);
    user.problem = "Slurm's version is being queried";
    user.scheduler->on_change([this](const JobId& job, std::int32_t attempt) {
        if (changed_ && !stopped_) {
            changed_(job, attempt);
        }
    });
    if (end_of_) {
        user.scheduler->know_ends(end_of_);
    }
    if (!stopped_) {
        tasks_.spawn("slurm user", begin_user(user, name));
    }
    return user;
}

// A Slurm that is too old for us today may be another one tomorrow; the daemon stays up for the
// others.
Task<void> SlurmUsers::begin_user(User& user, std::string name) {
    while (!stopped_) {
        const Status begun = co_await user.scheduler->begin();
        if (begun) {
            user.begun = true;
            break;
        }
        user.problem = begun.error().message;
        log::warn("cannot use Slurm", {{"user", name}, {"what", user.problem}});
        co_await sleep_on(*user.retry, kBeginAgain);
    }
    for (const auto& [job, followed] : jobs_) {
        if (followed.user == name && changed_ && !stopped_) {
            changed_(JobId{job}, 0);
        }
    }
}

SlurmUsers::User* SlurmUsers::find(const JobId& job) {
    const auto followed = jobs_.find(job.value);
    return followed == jobs_.end() ? nullptr : &user_of(followed->second.user);
}

const SlurmScheduler& SlurmUsers::representative() const {
    for (const auto& [name, user] : users_) {
        if (user.scheduler->facts() != nullptr) {
            return *user.scheduler;
        }
    }
    return *nobody_;
}

Result<Admission> SlurmUsers::admit(const JobSpec& spec) const {
    return representative().admit(spec);
}

Status SlurmUsers::admit_user(const std::string& user) const {
    if (const Status good = usable(user); !good) {
        return good;
    }
    passwd entry{};
    passwd* found = nullptr;
    std::array<char, 16'384> room{};
    if (::getpwnam_r(user.c_str(), &entry, room.data(), room.size(), &found) != 0 ||
        found == nullptr) {
        return fail(Errc::denied, user + " is not a Unix user of lockstepd's machine");
    }
    return {};
}

Result<std::optional<std::string>> SlurmUsers::script(const AttemptRequest& request) const {
    return representative().script(request);
}

Task<Handover> SlurmUsers::submit(AttemptRequest request) {
    Followed& followed = jobs_[request.job.value];
    followed.user = request.user;
    User& user = user_of(request.user);
    if (user.begun) {
        followed.told = true;
        auto handing = user.scheduler->submit(std::move(request));
        co_return co_await std::move(handing);
    }
    Handover out;
    out.reason = user.problem;
    co_return out;
}

Task<Result<bool>> SlurmUsers::adopt(AttemptRequest request) {
    Followed& followed = jobs_[request.job.value];
    followed.user = request.user;
    User& user = user_of(request.user);
    if (user.begun) {
        followed.told = true;
        auto adopting = user.scheduler->adopt(std::move(request));
        co_return co_await std::move(adopting);
    }
    co_return fail(Errc::unavailable, user.problem);
}

Task<Observation> SlurmUsers::poll(JobId job, std::int32_t attempt) {
    User* user = find(job);
    // Before its user's scheduler has heard of it, that would call it absent.
    if (user == nullptr || !jobs_[job.value].told) {
        co_return unreachable(user == nullptr ? "not searched for yet" : user->problem);
    }
    auto polling = user->scheduler->poll(std::move(job), attempt);
    co_return co_await std::move(polling);
}

bool SlurmUsers::may_claim(const JobId& job, std::int32_t attempt, const std::string& allocation) {
    User* user = find(job);
    return user == nullptr || user->scheduler->may_claim(job, attempt, allocation);
}

void SlurmUsers::claimed(const JobId& job, std::int32_t attempt, const std::string& allocation) {
    if (User* user = find(job)) {
        user->scheduler->claimed(job, attempt, allocation);
    }
}

void SlurmUsers::expect_end(const JobId& job, std::int32_t attempt, bool done) {
    if (User* user = find(job)) {
        user->scheduler->expect_end(job, attempt, done);
    }
}

void SlurmUsers::over(const JobId& job, std::int32_t attempt) {
    if (User* user = find(job)) {
        user->scheduler->over(job, attempt);
        jobs_.erase(job.value);
    }
}

void SlurmUsers::agents_moved() {
    for (const auto& [name, user] : users_) {
        user.scheduler->agents_moved();
    }
}

std::optional<std::string> SlurmUsers::leaving(const JobId& job) const {
    for (const auto& [name, user] : users_) {
        if (auto nodes = user.scheduler->leaving(job)) {
            return nodes;
        }
    }
    return std::nullopt;
}

Task<Status> SlurmUsers::cancel(JobId job, std::int32_t attempt) {
    User* user = find(job);
    if (user == nullptr) {
        co_return Status{};
    }
    auto cancelling = user->scheduler->cancel(std::move(job), attempt);
    co_return co_await std::move(cancelling);
}

Cluster SlurmUsers::cluster() {
    Cluster out;
    out.problem = "no user's Slurm token is stored";
    if (signers_) {
        return nobody_->cluster();
    }
    for (auto& [name, user] : users_) {
        if (user.begun && tokens_.usable(name)) {
            out = user.scheduler->cluster();
            if (out.reachable) {
                break;
            }
        }
    }
    return out;
}

Task<Status> SlurmUsers::ping() {
    Status out;
    if (signers_) {
        out = co_await nobody_->ping();
        co_return out;
    }
    for (auto& [name, user] : users_) {
        if (tokens_.usable(name)) {
            if (user.begun) {
                out = co_await user.scheduler->ping();
            } else {
                out = fail(Errc::unavailable, user.problem);
            }
            if (out) {
                break;
            }
        }
    }
    co_return out;
}

Status SlurmUsers::put(const std::string& user, const std::string& credential) {
    const Status kept = tokens_.put(user, credential);
    if (kept) {
        user_of(user).retry->cancel();
    }
    return kept;
}

std::optional<UnixMillis> SlurmUsers::good_until(const std::string& user) const {
    return tokens_.good_until(user);
}

Status SlurmUsers::forget(const std::string& user) {
    return tokens_.forget(user);
}

SlurmCounters SlurmUsers::counters() {
    SlurmCounters out;
    out.reachable = signers_ && nobody_->counters().reachable;
    for (auto& [name, user] : users_) {
        const SlurmCounters& one = user.scheduler->counters();
        out.polls += one.polls;
        out.polls_failed += one.polls_failed;
        out.submitted += one.submitted;
        out.refused += one.refused;
        out.unclear += one.unclear;
        out.adopted += one.adopted;
        out.forgotten += one.forgotten;
        out.surplus += one.surplus;
        out.malformed += one.malformed;
        out.attempts += one.attempts;
        out.sending += one.sending;
        out.leftovers += one.leftovers;
        out.leftovers_cancelled += one.leftovers_cancelled;
        for (const auto& [reason, jobs] : one.pending_reasons) {
            out.count_reason(reason, jobs);
        }
        for (const auto& [where, jobs] : one.jobs) {
            out.count_jobs(where, jobs);
        }
        out.reachable = out.reachable || one.reachable;
        out.last_poll_seconds = std::max(out.last_poll_seconds, one.last_poll_seconds);
        out.last_success = std::max(out.last_success, one.last_success);
    }
    return out;
}

}  // namespace lockstep
