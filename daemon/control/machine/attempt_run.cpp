#include "daemon/control/machine/attempt_run.hpp"

namespace lockstep {
namespace {

Rendezvous rendezvous_of(const Job& job) {
    const Resources& resources = job.spec.resources;
    Rendezvous out{resources.nodes, resources.allocated_nodes(), resources.least_nodes()};
    if (job.attempt() != nullptr && job.attempt()->finished_at == 0) {
        for (const auto& [slot, cause] : job.attempt()->lost) {
            out.lost(slot);
        }
    }
    if (const Generation* live = job.live_generation()) {
        out.fixed(live->number, live->slots);
    }
    return out;
}

}  // namespace

AttemptRun::AttemptRun(const Job& job) : rendezvous(rendezvous_of(job)), generation(job) {}

}  // namespace lockstep
