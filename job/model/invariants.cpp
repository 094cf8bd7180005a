#include "job/model/invariants.hpp"

namespace lockstep {
namespace {

bool ended_badly(const Job& job) {
    const Generation* generation = job.generation();
    const bool ranks =
        generation != nullptr &&
        (generation->first_failure || !generation->failed.empty() || !generation->stopped.empty());
    const bool fault = job.attempt() != nullptr &&
                       (job.attempt()->fault.has_value() || job.attempt()->last_lost.has_value());
    return ranks || fault || job.blocked.has_value() || job.cancel_requested_at != 0;
}

struct Check {
    const Job& job;
    using Found = std::optional<Invariant>;

    Found operator()(const event::AttemptCreated& e) const {
        const Attempt* last = job.attempt();
        const bool good = last == nullptr || (last->finished_at != 0 && e.attempt > last->number);
        return good ? Found{} : Invariant::one_live_attempt;
    }
    Found operator()(const event::AttemptSubmitting& e) const {
        const Attempt* current = job.attempt();
        const bool good =
            current != nullptr && current->number == e.attempt && current->claims.empty();
        return good ? Found{} : Invariant::one_live_attempt;
    }
    Found operator()(const event::AttemptSubmitted&) const {
        const Attempt* current = job.attempt();
        return current != nullptr && current->submissions > 0 ? Found{}
                                                              : Invariant::intent_comes_first;
    }
    Found operator()(const event::AgentClaimed& e) const {
        const Attempt* current = job.attempt();
        const bool good = current != nullptr && current->number == e.attempt &&
                          (current->claims.empty() || current->allocation == e.allocation);
        return good ? Found{} : Invariant::one_live_attempt;
    }
    Found operator()(const event::GenerationStarted& e) const {
        const Attempt* current = job.attempt();
        const bool good =
            current != nullptr && current->number == e.attempt && current->finished_at == 0 &&
            current->claims.size() >= static_cast<std::size_t>(job.spec.resources.least_nodes());
        return good ? Found{} : Invariant::ranks_need_a_claim;
    }
    Found operator()(const event::Finished& e) const {
        const bool good = e.state == JobState::succeeded
                              ? work_done(job)
                              : ended_badly(job) && e.cause.kind != CauseClass::none;
        return good ? Found{} : Invariant::end_needs_evidence;
    }
    template <class E>
    Found operator()(const E&) const {
        return {};
    }
};

}  // namespace

std::optional<Invariant> broken_by(const Job& job, const EventData& event) {
    return std::visit(Check{job}, event);
}

}  // namespace lockstep
