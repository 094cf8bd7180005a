// Tells the users of jobs what they asked to be told (notify in the specification): takes the
// notices that commits have left in the store and delivers each to its target, webhooks on threads
// of its own, mail by sendmail. At least once: a notice goes from the store after its receiver has
// taken it, so a daemon that is killed between delivers it again, under the same Idempotency-Key.
//
// What fails (no connection, no answer in 10 s, 408, 429, 5xx, sendmail's temporary errors) is
// tried again after 5 s, then after twice as long each time, hourly in the end, for 24 h; any other
// answer than 2xx is final. A target of a job gets one notice at a time, a host two, a user four:
// one that hangs holds up nobody else for long. Nothing here waits on the control thread. Control
// thread only.
#pragma once

#include "daemon/control/actor/owed_notices.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/telemetry/exposition/notice_metrics.hpp"
#include "job/async/http_client.hpp"
#include "job/async/side_thread.hpp"
#include "job/async/subprocess.hpp"
#include "job/model/job.hpp"
#include "job/model/notices.hpp"
#include "job/model/spec/notify.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// After so many tries in a row have failed; at least what the receiver asked for (Retry-After), an
// hour at most.
std::chrono::seconds notice_pause(std::int32_t tries,
                                  std::optional<std::chrono::seconds> asked = std::nullopt);
class Notifier {
  public:
    // The context outlives it.
    explicit Notifier(ControlContext& context);
    ~Notifier();
    Notifier(const Notifier&) = delete;
    Notifier& operator=(const Notifier&) = delete;

    // Delivers from now on, what an earlier daemon left included. `url`: of the API and the page,
    // for the links; "" = there are none.
    void begin(std::string url);
    // Ends what is under way; its coroutines then end within a second. What was not delivered stays
    // in the store.
    void halt();

    // What goes into the same append as the events; `job` is what they leave. A user who has
    // limits::kNoticesWaiting of them gets no more, those of appends under way included. If the
    // append is refused, what is returned is let go, as if nobody had asked.
    OwedNotices owed(const Job& job, const std::vector<Event>& events);
    // They are: from now on they count, also those that were dropped.
    void stored(OwedNotices owed);
    // There may be something to deliver, or the clock has moved.
    void wake();

  private:
    enum class Verdict : std::uint8_t { delivered, again, refused };
    struct Outcome {
        Verdict verdict = Verdict::again;
        std::string why{};
        std::optional<std::chrono::seconds> retry_after{};
    };

    Task<void> run();
    Task<bool> settle();
    Task<std::chrono::milliseconds> start_due();
    bool may_start(const NoticeRow& row) const;
    void leave(const NoticeRow& row);
    Task<void> deliver(NoticeRow row);
    Task<Outcome> post(NotifyTarget target, NoticeRow row);
    Task<Outcome> mail(NotifyTarget target, NoticeRow row);
    void note(const NoticeRow& row, const Outcome& outcome);
    std::string link(const JobId& job) const;
    static Outcome judge(const std::optional<Result<ClientResponse>>& answer);

    ControlContext& context_;
    telemetry::NoticeMetrics metrics_;
    SideThread threads_;
    ProcessRunner programs_;
    std::stop_source stop_;
    std::string url_;
    net::steady_timer wake_;
    bool running_ = false;
    bool stopping_ = false;
    bool wanted_ = false;  // something may be due that the last look did not see
    // Under way, and then until the store knows what became of it.
    std::map<std::int64_t, NoticeRow> in_flight_;
    std::map<std::string, std::size_t> lanes_;  // of those, how many
    std::map<std::string, std::size_t> users_;
    std::set<std::pair<JobId, std::string>> targets_;  // a job's at a time
    std::vector<NoticeSettled> settled_;               // that the store does not know of yet
    using Counts = std::map<std::string, std::size_t>;
    Counts waiting_;  // by user, in the store
    // The same, on their way there. What is owed may be let go after this has gone.
    std::shared_ptr<Counts> on_their_way_ = std::make_shared<Counts>();
};

}  // namespace lockstep
