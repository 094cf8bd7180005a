#include "daemon/telemetry/exposition/notice_metrics.hpp"

#include "job/base/enum_table.hpp"

#include <string>

namespace lockstep::telemetry {

NoticeMetrics::NoticeMetrics(DaemonMetrics& metrics) {
    constexpr std::array<const char*, kNoticeResults> kResults{"delivered", "failed", "given_up",
                                                               "dropped"};
    static_assert(names_all_of<NoticeResult>(kResults));
    auto& notices = prometheus::BuildCounter()
                        .Name("lockstep_notices_total")
                        .Help(
                            "Attempts to notify users of their jobs, and notices that were dropped "
                            "because too many of their user waited.")
                        .Register(metrics.registry());
    static_assert(is_count_of<NotifyKind, std::tuple_size_v<decltype(counts_)>>());
    for (const NotifyKind kind : {NotifyKind::webhook, NotifyKind::mail}) {
        for (std::size_t i = 0; i < kNoticeResults; ++i) {
            counts_[static_cast<std::size_t>(kind)][i] =
                &notices.Add({{"kind", std::string{to_string(kind)}}, {"result", kResults[i]}});
        }
    }
}

}  // namespace lockstep::telemetry
