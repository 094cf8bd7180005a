// From one generation to the next: ABORT, the end of the ranks, JOIN, who takes which place, WORLD,
// READY, START, STARTED, and ABORT to whoever is late. Who is where is in rendezvous.hpp, what the
// agents are told of a generation in world.hpp.
//
//   send_abort ─▶ may_end ─▶ add_generation_end ─▶ form_generation ─▶ begin_generation ─ WORLD
//   ─ READY ─▶ release_if_ready ─▶ send_start ─ STARTED ─▶ hear_started
//
// Functions of a draft, or of the job once that is durable (then also forget_generation), and of
// the attempt (AttemptRun), which those that do not take it as const change. Control thread only.
#pragma once

#include "daemon/control/machine/anomaly_run.hpp"
#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/effect.hpp"
#include "daemon/control/machine/surroundings.hpp"
#include "daemon/control/machine/wait_clock.hpp"
#include "job/model/event.hpp"
#include "job/model/job.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

// What may follow the end of a generation in the same append; `look`: nothing, the allocation is
// over.
enum class AfterEnd : std::uint8_t { look, next_generation };

// To whoever has not been sent it. The generation has ended once none of its ranks lives, or their
// node is lost. No rank of the next one starts before: two generations never write at a time.
Effects send_abort(const Job& job, AttemptRun& run, const Cause& cause, const Surroundings& at);
// Nothing: a rank of it may live, or there is something to store first. `over`: the allocation is.
std::optional<AfterEnd> may_end(const Draft& draft, const AttemptRun& run, bool over);
// That the live generation has ended, and what is still to be told of it. False: none lives.
bool add_generation_end(Draft& draft, AttemptRun& run, AnomalyRun& anomalies, const Cause& cause);
// That is durable: what was known of it goes.
void forget_generation(AttemptRun& run);
// A generation that is over, and the agent does not know it: ABORT once more. True if it was that.
bool abort_if_over(Draft& draft, const AgentPtr& link, std::int32_t generation);

void hear_join(Draft& draft, AttemptRun& run, const WaitClock& waits, const AgentPtr& link,
               const wire::Join& join);
// Once every node that is needed has joined: the ranks, the master and the number of the generation
// are fixed and on disk before anybody hears of them. To be called with everything that may have
// been the last that was missing.
void form_generation(Draft& draft, const AttemptRun& run, const WaitClock& waits);
// It is durable; `slots`: its nodes.
void begin_generation(Effects& out, const Job& job, AttemptRun& run,
                      const std::vector<std::int32_t>& slots);

void hear_ready(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Ready& ready);
// START leaves once every node is ready (or has started: the daemon may have been restarted half
// way), and once that is on disk: of what was not released no rank has run. It goes to thousands of
// nodes, but only once to all; `link` is the node that was heard just now, or nullptr.
void release_if_ready(Draft& draft, const AttemptRun& run, const AgentPtr& link);
// That is durable.
void send_start(Effects& out, AttemptRun& run, std::int32_t generation);
// To one that has not heard it.
void send_start_again(Effects& out, const AttemptRun& run, const AgentPtr& link);
void hear_started(Draft& draft, AttemptRun& run, const AgentPtr& link,
                  const wire::Started& started);

}  // namespace lockstep
