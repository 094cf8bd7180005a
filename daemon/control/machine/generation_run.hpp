// What the daemon knows of a generation beside its events, for as long as that lives: assigning a
// fresh one forgets the last one whole. After a restart of the daemon it begins empty, and fills
// from what the agents say again. Value; control thread only.
#pragma once

#include "daemon/control/machine/hang_watch.hpp"
#include "daemon/control/machine/kv_store.hpp"
#include "daemon/control/machine/profile_run.hpp"
#include "daemon/control/machine/surroundings.hpp"
#include "daemon/telemetry/series/job_stats.hpp"
#include "job/base/limits.hpp"
#include "job/model/anomaly.hpp"
#include "job/model/job.hpp"
#include "job/model/wire/wire.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

// What the ranks are doing is being asked, because of a hang or of somebody.
struct EvidenceRun {
    HangWatch::Verdict verdict{};
    bool hang = false;
    bool kept = false;  // of a hang that is being acted on: nobody looks at its ranks again
    std::string reason{};
    std::chrono::steady_clock::time_point since{};
    std::set<std::int32_t> awaited{};  // slots that have not said what their ranks do
    std::set<std::int32_t> unsaved{};  // and whose evidence is not written
    std::vector<wire::RankState> ranks{};
    std::vector<wire::RankEvidence> saved{};

    // Whether all that is awaited is in, or its time is over.
    bool is_in(std::chrono::steady_clock::time_point now) const {
        return (awaited.empty() && unsaved.empty()) || now - since >= limits::kEvidencePatience;
    }
};

// Nodes wait to be taken into a larger generation: since when, and the newest checkpoint then.
struct GrowthWait {
    std::chrono::steady_clock::time_point since;
    std::int64_t checkpoint;
};

// Hosts, addresses and ports of the live generation.
wire::Table table_of(const Job& job);

struct GenerationRun {
    using Time = std::chrono::steady_clock::time_point;

    // Between two generations, and before the first.
    GenerationRun() = default;
    // Of the job's live generation; without one as above.
    explicit GenerationRun(const Job& job);

    // START was sent to whoever was ready: no node of it that gets ready later waits for others.
    bool released = false;
    // TABLE and its digest; none: WORLD has all of it.
    std::shared_ptr<const std::string> table{};
    std::string table_digest{};
    // The RDMA ports of each node of several, by slot, as the pre-flight has found them. After a
    // restart of the daemon nobody is told any: then NCCL takes what it finds.
    std::map<std::int32_t, std::vector<std::string>> rdma_ports{};
    // The rendezvous keys of its ranks; none: nobody has asked for one. Whoever waits for a key
    // when it ends is not answered any more.
    std::optional<KvStore> keys{};
    // ABORT is on its way since then: no START leaves for it from now on.
    std::optional<Time> abort_sent{};
    bool abort_due = false;  // somebody may not have been sent it
    HangWatch hang_watch{};
    bool hang_untold = false;  // they hang, and limits::kAnomalyEvents hangs before it were told
    // The step of those that are said to wait for a rank in NCCL, when lockstepd first looked.
    std::optional<std::int64_t> desync_step{};
    std::optional<EvidenceRun> evidence{};
    std::optional<ProfileRun> profile{};
    std::optional<GrowthWait> growth{};
    bool time_limit_told = false;  // that its end is near is among the events
    std::int32_t deaf_told = 0;    // of those events, the ones that name a rank
    // The job's anomalies before it; after a restart of the daemon, before that.
    std::array<std::int64_t, kAnomalyKinds> anomalies_before{};
    // Of its node in this slot.
    std::vector<std::string> ports_of(std::int32_t slot) const;
    // From telemetry, at most 250 ms old; nullptr if nothing was reported.
    const telemetry::JobStats* fresh_stats(const Surroundings& at);
    // The same as they were last asked for; none: not yet.
    std::optional<telemetry::JobStats> stats{};
    Time stats_at{};
};

}  // namespace lockstep
