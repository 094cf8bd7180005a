#include "daemon/control/notices/notifier.hpp"

#include "daemon/control/notices/mail_message.hpp"
#include "daemon/store/notice_records.hpp"
#include "daemon/telemetry/remote_write/remote_queue.hpp"
#include "job/async/http_client.hpp"
#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cstdlib>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstPause = 5s;
constexpr auto kLongestPause = std::chrono::seconds{1h};
constexpr auto kLongestSleep = std::chrono::milliseconds{1min};  // the clock may be set
constexpr auto kNoticeStoreRetry = std::chrono::milliseconds{5s};
constexpr std::size_t kNoticesAtATime = limits::kNoticeThreads + 2;  // with two mails
constexpr std::size_t kNoticesOfLane = 2;
// Of a lane: two that are under way, and some more, should they be of targets that are busy.
constexpr std::size_t kLookAtOfLane = 16;
constexpr std::size_t kLookAtNotices = 256;
constexpr std::size_t kSendmailWords = 4U << 10U;
constexpr const char* kMailLane = "mail";

std::string lane_of(const NotifyTarget& target) {
    return target.kind == NotifyKind::mail ? kMailLane : "host " + target.host;
}

NotifyKind kind_of(const NoticeRow& row) {
    return row.lane == kMailLane ? NotifyKind::mail : NotifyKind::webhook;
}

void one_less(std::map<std::string, std::size_t>& counts, const std::string& name) {
    const auto found = counts.find(name);
    if (found != counts.end() && --found->second == 0) {
        counts.erase(found);
    }
}

std::size_t count_in(const std::map<std::string, std::size_t>& counts, const std::string& name) {
    const auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
}

// Exit codes of sendmail (sysexits.h) that another try would get again: usage, data, no such user,
// no such host.
bool is_final_exit(int code) {
    return code == 64 || code == 65 || code == 67 || code == 68;
}

}  // namespace

std::chrono::seconds notice_pause(std::int32_t tries, std::optional<std::chrono::seconds> asked) {
    std::chrono::seconds pause = kFirstPause;
    for (std::int32_t i = 1; i < tries && pause < kLongestPause; ++i) {
        pause *= 2;
    }
    pause = std::min(pause, kLongestPause);
    return asked ? std::clamp(*asked, pause, kLongestPause) : pause;
}

Notifier::Notifier(ControlContext& context)
    : context_(context),
      metrics_(context.metrics),
      threads_(context.io, limits::kNoticeThreads),
      programs_(context.io),
      wake_(context.io) {}

Notifier::~Notifier() = default;

void Notifier::begin(std::string url) {
    url_ = std::move(url);
    if (!running_ && !stopping_) {
        running_ = true;
        context_.tasks.spawn("notifier", run());
    }
}

void Notifier::halt() {
    stopping_ = true;
    stop_.request_stop();
    threads_.let_go();
    programs_.kill_all();
    wake_.cancel();
}

void Notifier::wake() {
    wanted_ = true;
    wake_.cancel();
}

OwedNotices Notifier::owed(const Job& job, const std::vector<Event>& events) {
    OwedNotices out;
    if (job.spec.notify.empty()) {
        return out;
    }
    const UnixMillis now = context_.clock.wall();
    for (const Notice& notice : notices_of(job, events)) {
        const std::string body = dump_json(notice.body);
        for (const std::string& text : job.spec.notify) {
            const auto target = parse_notify_target(text);
            if (!target) {
                continue;  // of a version that took more
            }
            NoticeRow row;
            row.job = job.id;
            row.user = job.user;
            row.seq = notice.seq;
            row.target = text;
            row.lane = lane_of(*target);
            row.body = body;
            row.created_at = now;
            row.due_at = now;
            const std::size_t waiting =
                count_in(waiting_, job.user) + count_in(*on_their_way_, job.user) + out.rows.size();
            (waiting < limits::kNoticesWaiting ? out.rows : out.dropped).push_back(std::move(row));
        }
    }
    if (!out.rows.empty()) {
        (*on_their_way_)[job.user] += out.rows.size();
        const auto leave = [counts = on_their_way_, user = job.user,
                            rows = out.rows.size()](void*) {
            for (std::size_t i = 0; i < rows; ++i) {
                one_less(*counts, user);
            }
        };
        out.place = std::shared_ptr<void>{nullptr, leave};
    }
    return out;
}

void Notifier::stored(OwedNotices owed) {
    owed.place.reset();
    for (const NoticeRow& row : owed.dropped) {
        metrics_.count(kind_of(row), telemetry::NoticeResult::dropped);
        log::warn("a notice is dropped: too many of its user wait",
                  {{"job", row.job.value}, {"user", row.user}});
    }
    for (const NoticeRow& row : owed.rows) {
        ++waiting_[row.user];  // until the next look at the store, which knows better
    }
    if (!owed.rows.empty()) {
        wake();
    }
}

Task<void> Notifier::run() {
    while (!stopping_) {
        wanted_ = false;
        std::chrono::milliseconds pause = kNoticeStoreRetry;
        const bool stored = co_await settle();
        if (stored && !stopping_) {
            pause = co_await start_due();
        }
        if (!stopping_ && (!wanted_ || !stored)) {
            co_await sleep_on(wake_, pause);
        }
    }
    co_await settle();
}

// What became of tries. False: the store cannot take it; nothing is sent a second time meanwhile.
Task<bool> Notifier::settle() {
    if (settled_.empty()) {
        co_return true;
    }
    const std::vector<NoticeSettled> now = settled_;
    std::vector<NoticeSettled> copy = now;
    const Status stored = co_await context_.store.settle_notices(std::move(copy));
    if (!stored) {
        log::error("cannot store what became of notices", {{"what", stored.error().message}});
        co_return false;
    }
    for (const NoticeSettled& one : now) {
        const auto found = in_flight_.find(one.id);
        if (found != in_flight_.end()) {
            leave(found->second);
            in_flight_.erase(found);
        }
    }
    settled_.erase(settled_.begin(), settled_.begin() + static_cast<std::ptrdiff_t>(now.size()));
    co_return true;
}

// How long until something else is due.
Task<std::chrono::milliseconds> Notifier::start_due() {
    NoticeQuery query;
    query.now = context_.clock.wall();
    query.latest = query.now + 2 * std::chrono::milliseconds{kLongestPause}.count();
    query.of_lane = kLookAtOfLane;
    query.most = kLookAtNotices;
    const std::function<Result<NoticeQueue>(Database&)> look = [query](Database& db) {
        return NoticeRecords{db}.queue(query);
    };
    auto queue = co_await context_.store.read<NoticeQueue>(look);
    if (!queue) {
        log::error("cannot read which notices are due", {{"what", queue.error().message}});
        co_return kNoticeStoreRetry;
    }
    waiting_ = std::move(queue->waiting);
    for (NoticeRow& row : queue->due) {
        if (!stopping_ && may_start(row)) {
            ++lanes_[row.lane];
            ++users_[row.user];
            targets_.emplace(row.job, row.target);
            in_flight_.emplace(row.id, row);
            context_.tasks.spawn("notice", deliver(std::move(row)));
        }
    }
    if (queue->next_due == 0) {
        co_return kLongestSleep;
    }
    const std::chrono::milliseconds until{queue->next_due - query.now};
    co_return std::clamp(until, std::chrono::milliseconds{1}, kLongestSleep);
}

bool Notifier::may_start(const NoticeRow& row) const {
    return in_flight_.size() < kNoticesAtATime && !in_flight_.contains(row.id) &&
           count_in(lanes_, row.lane) < kNoticesOfLane &&
           count_in(users_, row.user) < limits::kNoticesOfUserAtATime &&
           !targets_.contains({row.job, row.target});
}

void Notifier::leave(const NoticeRow& row) {
    one_less(lanes_, row.lane);
    one_less(users_, row.user);
    targets_.erase({row.job, row.target});
}

Task<void> Notifier::deliver(NoticeRow row) {
    if (stopping_) {
        co_return;
    }
    const auto target = parse_notify_target(row.target);
    // The settings may be others than when the job was taken.
    const std::string refused = target
                                    ? why_not_notified(*target, row.user, context_.settings.notify)
                                    : std::string{target.error().message};
    Outcome outcome;
    if (!refused.empty()) {
        outcome.verdict = Verdict::refused;
        outcome.why = refused;
    } else if (target->kind == NotifyKind::webhook) {
        NotifyTarget where = *target;
        NoticeRow what = row;
        outcome = co_await post(std::move(where), std::move(what));
    } else {
        NotifyTarget where = *target;
        NoticeRow what = row;
        outcome = co_await mail(std::move(where), std::move(what));
    }
    // One that was cut off is not known to have failed: the next daemon tries it again.
    if (!stopping_ || outcome.verdict == Verdict::delivered) {
        note(row, outcome);
    }
    wake();
}

void Notifier::note(const NoticeRow& row, const Outcome& outcome) {
    const NotifyKind kind = kind_of(row);
    NoticeSettled settled;
    settled.id = row.id;
    settled.tries = row.tries + 1;
    const UnixMillis now = context_.clock.wall();
    const bool late =
        now - row.created_at >= std::chrono::milliseconds{limits::kNoticePatience}.count();
    if (outcome.verdict == Verdict::delivered) {
        metrics_.count(kind, telemetry::NoticeResult::delivered);
    } else if (outcome.verdict == Verdict::refused || late) {
        metrics_.count(kind, telemetry::NoticeResult::given_up);
        log::warn("a notice is given up", {{"job", row.job.value},
                                           {"seq", row.seq},
                                           {"target", public_notify_target(row.target)},
                                           {"tries", settled.tries},
                                           {"why", outcome.why}});
    } else {
        const auto pause = notice_pause(settled.tries, outcome.retry_after);
        settled.due_at = now + std::chrono::milliseconds{pause}.count();
        metrics_.count(kind, telemetry::NoticeResult::failed);
        log::info("a notice was not taken, it is sent again",
                  {{"job", row.job.value},
                   {"seq", row.seq},
                   {"target", public_notify_target(row.target)},
                   {"seconds", pause.count()},
                   {"why", outcome.why}});
    }
    settled_.push_back(settled);
}

std::string Notifier::link(const JobId& job) const {
    return url_.empty() ? "" : url_ + "/#/jobs/" + job.value;
}

Notifier::Outcome Notifier::judge(const std::optional<Result<ClientResponse>>& answer) {
    Outcome out;
    if (!answer) {
        out.why = "no answer in time";
    } else if (!*answer) {
        const Error& error = answer->error();
        out.verdict = error.code == Errc::invalid ? Verdict::refused : Verdict::again;
        out.why = error.message;
    } else {
        const int status = (*answer)->status;
        const bool again = status == 408 || status == 429 || status >= 500;
        out.why = "it answered " + std::to_string(status);
        out.verdict = status >= 200 && status < 300 ? Verdict::delivered
                      : again                       ? Verdict::again
                                                    : Verdict::refused;
        if (again) {
            out.retry_after = telemetry::retry_after(**answer);
        }
    }
    return out;
}

Task<Notifier::Outcome> Notifier::post(NotifyTarget target, NoticeRow row) {
    Endpoint endpoint;
    endpoint.host = target.host;
    endpoint.port = target.port;
    endpoint.tls = target.tls;
    if (context_.settings.notify.hosts.empty()) {
        endpoint.may_connect = [](const net::ip::address& address) {
            return !is_own_address(address);
        };
    }
    ClientRequest request;
    request.method = "POST";
    request.target = target.path;
    auto body = parse_json(row.body);
    if (body && !link(row.job).empty()) {
        (*body)["url"] = link(row.job);
    }
    request.body = body ? dump_json(*body) : row.body;
    request.headers = {{"Content-Type", "application/json"},
                       {"Idempotency-Key", row.job.value + "-" + std::to_string(row.seq)}};
    request.deadline = limits::kWebhookDeadline;
    request.stop = stop_.get_token();
    request.head_only = true;
    const std::function<Result<ClientResponse>()> work = [endpoint, request] {
        return http_request_now(endpoint, request);
    };
    // The request has its own deadline: this is for a thread that hangs all the same.
    const auto until = std::chrono::steady_clock::now() + 2 * limits::kWebhookDeadline;
    const auto answer = co_await threads_.run<Result<ClientResponse>>(work, until);
    co_return judge(answer);
}

Task<Notifier::Outcome> Notifier::mail(NotifyTarget target, NoticeRow row) {
    const std::string to = target.address.empty() ? row.user : target.address;
    const auto body = parse_json(row.body);
    const Mail text = mail_of(body ? *body : Json::object(), link(row.job));
    const std::string id =
        row.job.value + "-" + std::to_string(row.seq) + ".lockstep@" + host_name();
    ProcessCommand command;
    command.argv = {context_.settings.notify.sendmail, "-i", "--", to};
    command.environment = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                           "LANG=C.UTF-8"};
    if (const char* home = std::getenv("HOME")) {
        command.environment.push_back("HOME=" + std::string{home});  // of ~/.msmtprc
    }
    command.input = mail_message(text, to, id, row.created_at);
    command.timeout = limits::kMailDeadline;
    command.output_bytes = kSendmailWords;
    command.drop_excess = true;
    command.leave_children = true;  // exim delivers in the background
    const auto done = co_await programs_.run(std::move(command));
    Outcome out;
    if (!done) {
        out.why = done.error().message;
    } else if (done->exit_status == 0) {
        out.verdict = Verdict::delivered;
    } else if (done->timed_out) {
        out.why = "sendmail did not end in time";
    } else {
        const int code = done->exit_status.value_or(-1);
        out.verdict = is_final_exit(code) ? Verdict::refused : Verdict::again;
        out.why = "sendmail ended with " + std::to_string(code) + ": " +
                  printable(trim(done->err.empty() ? done->out : done->err));
    }
    co_return out;
}

}  // namespace lockstep
