// What becomes of the notices to users of jobs. One per daemon; control thread only; the
// DaemonMetrics must outlive it.
#pragma once

#include "daemon/telemetry/exposition/daemon_metrics.hpp"
#include "job/model/spec/notify.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::telemetry {

enum class NoticeResult : std::uint8_t {
    delivered,
    failed,    // a try: another one follows
    given_up,  // none does
    dropped,   // never stored: too many of the user waited
};
inline constexpr std::size_t kNoticeResults = 4;

class NoticeMetrics {
  public:
    explicit NoticeMetrics(DaemonMetrics& metrics);

    void count(NotifyKind kind, NoticeResult result) {
        counts_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(result)]->Increment();
    }

  private:
    std::array<std::array<prometheus::Counter*, kNoticeResults>, 2> counts_{};  // by NotifyKind
};

}  // namespace lockstep::telemetry
