#include "daemon/control/machine/generation_run.hpp"

#include "job/base/digest.hpp"
#include "job/base/limits.hpp"

namespace lockstep {
namespace {

constexpr auto kStatsAge = std::chrono::milliseconds{250};

}  // namespace

wire::Table table_of(const Job& job) {
    wire::Table out;
    const Generation& generation = *job.live_generation();
    for (std::int32_t node = 0; node < generation.nodes; ++node) {
        out.hosts.push_back(job.claim_of_node(node)->node);
    }
    if (!generation.ports.empty()) {
        out.addresses = generation.addresses;
        out.ports = generation.ports;
    }
    return out;
}

GenerationRun::GenerationRun(const Job& job) : anomalies_before(job.anomalies) {
    if (job.live_generation() == nullptr || job.nodes() <= limits::kWorldHosts) {
        return;
    }
    // Of a large world, once for all who will ask.
    wire::Table all = table_of(job);
    const std::string content = wire::encode(wire::DaemonMessage{all});
    all.digest = sha256_hex(content).substr(0, 32);
    table_digest = all.digest;
    table = std::make_shared<const std::string>(wire::encode(wire::DaemonMessage{all}));
}

std::vector<std::string> GenerationRun::ports_of(std::int32_t slot) const {
    const auto found = rdma_ports.find(slot);
    return found == rdma_ports.end() ? std::vector<std::string>{} : found->second;
}

const telemetry::JobStats* GenerationRun::fresh_stats(const Surroundings& at) {
    if (at.series == nullptr) {
        return nullptr;
    }
    if (!stats || at.steady - stats_at > kStatsAge) {
        stats = telemetry::compute_job_stats(*at.series, at.wall_seconds());
        stats_at = at.steady;
    }
    return &*stats;
}

}  // namespace lockstep
