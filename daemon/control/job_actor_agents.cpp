// size: one small function per message of the agents' protocol
// What agents say to their job, and what the job answers.
#include "daemon/control/attempt_files.hpp"
#include "daemon/control/job_actor.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cstdlib>

namespace lockstep {
namespace {
// A node's times go into the events of its job, and TLS certificates have dates.
constexpr UnixMillis kClockTolerance = 5 * 60'000;
}  // namespace

bool JobActor::current(const AgentLink& link, std::int32_t generation) const {
    const Generation* now = job_.generation();
    return job_.attempt() != nullptr && link.attempt() == job_.attempt()->number &&
           now != nullptr && now->number == generation;
}

void JobActor::fence(const std::shared_ptr<AgentLink>& link, std::string why) {
    log::warn("agent fenced", {{"job", job_.id.value}, {"node", link->node}, {"why", why}});
    wire::Fenced fenced;
    fenced.generation = job_.generation() != nullptr ? job_.generation()->number : 0;
    fenced.message = std::move(why);
    link->send(fenced);
    link->close("fenced");
}

void JobActor::take(Draft& draft, AgentInput& input) {
    const auto& link = input.link;
    if (!link->open()) {
        return;
    }
    if (const auto* message = std::get_if<wire::Hello>(&input.message)) {
        hello(draft, link, *message);
        return;
    }
    const auto known = links_.find(link->node_rank);
    if (known == links_.end() || known->second != link) {
        // HELLO is in this draft too (not accepted yet) or was superseded: once more, in order.
        if (link->hello_pending) {
            deferred_.push_back(input);  // a copy: the draft may be tried again
        }
        return;
    }
    if (const auto* m = std::get_if<wire::Join>(&input.message)) {
        join(draft, link, *m);
    } else if (const auto* m1 = std::get_if<wire::Ready>(&input.message)) {
        ready(link, *m1);
    } else if (const auto* m2 = std::get_if<wire::Started>(&input.message)) {
        node_started(draft, link, *m2);
    } else if (const auto* m3 = std::get_if<wire::Exited>(&input.message)) {
        exited(draft, link, *m3);
    } else if (const auto* m4 = std::get_if<wire::Fault>(&input.message)) {
        fault(draft, link, *m4);
    } else if (const auto* m5 = std::get_if<wire::CheckpointSaved>(&input.message)) {
        checkpoint(draft, link, *m5);
    } else if (const auto* m6 = std::get_if<wire::Done>(&input.message)) {
        const std::uint64_t number = m6->event;
        draft.effects.push_back([link, number] {
            link->done = true;
            link->acknowledge_event(number);
        });
    } else if (const auto* m7 = std::get_if<wire::KeyRequest>(&input.message)) {
        // Not before the append: an add() must not count twice when that is tried again.
        draft.effects.push_back([this, link, request = *m7] { keys(link, request); });
    } else if (const auto* m8 = std::get_if<wire::Beat>(&input.message)) {
        if (m8->dropped_rows > link->dropped_rows) {
            context_.metrics.ingest_dropped(telemetry::DropReason::queue_full,
                                            m8->dropped_rows - link->dropped_rows);
            link->dropped_rows = m8->dropped_rows;
        }
    }
}

void JobActor::take(Draft&, AgentGoneInput& input) {
    const auto known = links_.find(input.link->node_rank);
    if (known != links_.end() && known->second == input.link) {
        gone_[known->first] = context_.clock.steady();
        links_.erase(known);
    }
}

void JobActor::take(Draft& draft, CancelInput& input) {
    if (!is_final(draft.job.state) && draft.job.cancel_requested_at == 0) {
        event::CancelRequested cancel;
        cancel.by = input.by;
        add(draft, std::move(cancel));
    }
    draft.answers.push_back(input.done);
}

void JobActor::take(Draft& draft, DependencyInput& input) {
    event::DependencyFailed failed;
    failed.after = input.after;
    failed.message = input.after + ", which it was to run after, has not succeeded";
    add(draft, std::move(failed));
}

void JobActor::take(Draft&, LookInput&) {}

void JobActor::refuse(Draft& draft, const std::shared_ptr<AgentLink>& link,
                      const wire::Hello& hello, std::string why) {
    link->node = printable(std::string_view{hello.node}.substr(0, limits::kTextBytes));
    const Attempt* attempt = draft.job.attempt();
    if (attempt != nullptr && attempt->refused < limits::kRefusalEvents) {
        event::AgentRefused refused;
        refused.attempt = attempt->number;
        refused.node_rank = hello.node_rank;
        refused.node = link->node;
        refused.reason = why;
        add(draft, std::move(refused));  // a finished job takes no events: then the log has it
    }
    fence(link, std::move(why));
}

// Why an agent cannot be had; "" if it can.
std::string JobActor::unwelcome(const Job& job, const AgentLink& link, const wire::Hello& hello) {
    const Attempt* attempt = job.attempt();
    if (hello.protocol != wire::kProtocol) {
        return "this daemon speaks protocol " + std::to_string(wire::kProtocol);
    }
    if (attempt == nullptr || attempt->number != link.attempt() || attempt->finished_at != 0 ||
        hello.node_rank < 0 || hello.node_rank >= job.spec.resources.nodes ||
        hello.incarnation.empty() || hello.incarnation.size() > limits::kTextBytes ||
        hello.allocation.size() > limits::kTextBytes) {
        return "not a node of the current attempt";
    }
    // Ranks that train already are not stopped for it.
    const UnixMillis now = context_.clock.wall();
    const UnixMillis behind = now - std::clamp<UnixMillis>(hello.time, 0, 2 * now);
    if (hello.time != 0 && !hello.ranks_running && std::abs(behind) > kClockTolerance) {
        set_pending_reason("the clock of " + printable(hello.node) + " is " +
                           std::to_string(std::abs(behind) / 1000) + " s " +
                           (behind > 0 ? "behind" : "ahead"));
        return pending_reason_;
    }
    return "";
}

void JobActor::hello(Draft& draft, const std::shared_ptr<AgentLink>& link,
                     const wire::Hello& hello) {
    if (std::string why = unwelcome(draft.job, *link, hello); !why.empty()) {
        refuse(draft, link, hello, std::move(why));
        return;
    }
    const Attempt* attempt = draft.job.attempt();
    if (!attempt->claims.empty() && attempt->allocation != hello.allocation) {
        // A second copy of the attempt: the scheduler took it twice. The first claim has it.
        refuse(draft, link, hello,
               "attempt " + std::to_string(attempt->number) + " runs in allocation " +
                   attempt->allocation + ", this is " + printable(hello.allocation));
        return;
    }
    if (draft.job.state == JobState::queued || draft.job.state == JobState::held) {
        // The scheduler has started it and we hear of it from the agent first.
        event::AttemptPlaced placed;
        placed.attempt = attempt->number;
        placed.scheduler_id = !hello.allocation.empty()
                                  ? hello.allocation
                                  : std::string{context_.scheduler.name()} + "-" + job_.id.value +
                                        "-a" + std::to_string(attempt->number);
        add(draft, std::move(placed));
    }
    const auto claim = attempt->claims.find(hello.node_rank);
    if (claim != attempt->claims.end() && claim->second.incarnation != hello.incarnation) {
        refuse(draft, link, hello,
               "node " + std::to_string(hello.node_rank) + " was claimed by another agent");
        return;
    }
    link->node = printable(std::string_view{hello.node}.substr(0, limits::kTextBytes));
    link->incarnation = hello.incarnation;
    if (claim == attempt->claims.end()) {
        event::AgentClaimed claimed;
        claimed.attempt = attempt->number;
        claimed.node_rank = hello.node_rank;
        claimed.node = link->node;
        claimed.incarnation = hello.incarnation;
        claimed.pid = hello.pid;
        claimed.allocation = hello.allocation;
        if (!add(draft, std::move(claimed))) {
            refuse(draft, link, hello, "the job is not waiting for agents");
            return;
        }
    }
    link->hello_pending = true;
    if (!hello.allocation.empty()) {
        const std::int32_t number = attempt->number;
        draft.effects.push_back([this, number, allocation = hello.allocation] {
            context_.scheduler.claimed(job_.id, number, allocation);
        });
    }
    const bool running = hello.ranks_running;
    draft.effects.push_back([this, link, running] {
        link->hello_pending = false;
        if (!link->open()) {
            return;
        }
        auto& place = links_[link->node_rank];
        if (place && place != link) {
            place->close("another connection of the same agent");
        }
        place = link;
        gone_.erase(link->node_rank);
        link->accepted = true;
        if (running) {
            link->phase = AgentLink::Phase::started;
        }
        link->send(welcome(*link));
        if (stop_sent_) {
            inputs_.emplace_back(LookInput{});
        }
    });
}

wire::Welcome JobActor::welcome(const AgentLink& link) const {
    wire::Welcome out;
    out.daemon = context_.settings.daemon_id;
    out.time = context_.clock.wall();
    out.job_id = job_.id.value;
    out.job_name = job_.spec.name;
    out.attempt = link.attempt();
    out.generation = job_.generation() != nullptr ? job_.generation()->number : 0;
    if (const auto* series = context_.series.find(job_.id.value)) {
        out.acked_batch = series->last_batch(link.attempt(), link.node_rank);
    }
    out.checkpoint_directory =
        job_.spec.checkpoint.directory.empty()
            ? default_checkpoint_directory(context_.settings.runs_dir, job_.id).string()
            : job_.spec.checkpoint.directory;
    out.spec = to_json(job_.spec);
    return out;
}

void JobActor::join(Draft& draft, const std::shared_ptr<AgentLink>& link, const wire::Join& join) {
    const std::int32_t ports = needs_endpoints(job_.spec) ? job_.spec.processes_per_node() : 0;
    if (join.ports.size() != static_cast<std::size_t>(ports)) {
        fence(link, "JOIN with " + std::to_string(join.ports.size()) + " ports, not " +
                        std::to_string(ports));
        return;
    }
    link->join = join;
    link->phase = AgentLink::Phase::joined;
    if (draft.job.generation() != nullptr) {
        // Fixed before: this agent had not heard of it, or the daemon was restarted in between.
        send_world(link);
        return;
    }
    form_generation(draft);
}

// Once every node has joined: the ranks, the master and the number of the generation are fixed and
// on disk before anybody hears of them.
void JobActor::form_generation(Draft& draft) {
    const std::int32_t nodes = job_.spec.resources.nodes;
    const auto joined = std::count_if(links_.begin(), links_.end(), [](const auto& entry) {
        return entry.second->phase == AgentLink::Phase::joined;
    });
    if (joined < nodes || stop_sent_) {
        return;
    }
    event::GenerationStarted started;
    started.attempt = draft.job.attempt()->number;
    started.generation = 1;
    started.master_address = links_.at(0)->join.address;
    started.master_port = links_.at(0)->join.port;
    for (const auto& [node_rank, link] : links_) {
        started.addresses.push_back(link->join.address);
        started.ports.insert(started.ports.end(), link->join.ports.begin(), link->join.ports.end());
    }
    started.resumed_from_step = draft.job.checkpoint_step;
    if (!add(draft, std::move(started))) {
        return;
    }
    draft.effects.push_back([this] {
        for (const auto& [node_rank, link] : links_) {
            if (link->phase == AgentLink::Phase::joined) {
                send_world(link);
            }
        }
    });
}

void JobActor::send_world(const std::shared_ptr<AgentLink>& link) {
    const Generation* generation = job_.generation();
    if (generation == nullptr || stop_sent_) {
        return;
    }
    wire::World world;
    world.generation = generation->number;
    world.world_size = job_.spec.world_size();
    world.node_rank = link->node_rank;
    world.first_rank = link->node_rank * job_.spec.processes_per_node();
    world.local_ranks = job_.spec.processes_per_node();
    world.master_address = generation->master_address;
    world.master_port = generation->master_port;
    for (const auto& [node_rank, claim] : job_.attempt()->claims) {
        world.hosts.push_back(claim.node);
    }
    if (!generation->ports.empty()) {
        world.addresses = generation->addresses;
        world.ports = generation->ports;
    }
    world.resume_step = generation->resumed_from_step;
    link->send(world);
}

void JobActor::ready(const std::shared_ptr<AgentLink>& link, const wire::Ready& ready) {
    if (!current(*link, ready.generation)) {
        fence(link, "READY of another generation");
        return;
    }
    link->phase = AgentLink::Phase::ready;
    start_if_ready();
}

// START leaves once every node is ready (or has started: the daemon may have been restarted half
// way). It is sent again to a node that says READY again.
void JobActor::start_if_ready() {
    const auto set = std::count_if(links_.begin(), links_.end(), [](const auto& entry) {
        return entry.second->phase >= AgentLink::Phase::ready;
    });
    if (set < job_.spec.resources.nodes || stop_sent_) {
        return;
    }
    for (const auto& [node_rank, link] : links_) {
        if (link->phase == AgentLink::Phase::ready) {
            link->send(wire::Start{job_.generation()->number});
        }
    }
}

void JobActor::node_started(Draft& draft, const std::shared_ptr<AgentLink>& link,
                            const wire::Started& started) {
    if (!current(*link, started.generation)) {
        fence(link, "STARTED of another generation");
        return;
    }
    link->phase = AgentLink::Phase::started;
    for (const auto& rank : started.ranks) {
        pids_[rank.rank] = rank.pid;
    }
    const auto running = std::count_if(links_.begin(), links_.end(), [](const auto& entry) {
        return entry.second->phase == AgentLink::Phase::started;
    });
    if (running == job_.spec.resources.nodes && draft.job.generation()->running_at == 0) {
        event::RanksStarted all;
        all.attempt = draft.job.attempt()->number;
        all.generation = started.generation;
        add(draft, all);
    }
}

void JobActor::exited(Draft& draft, const std::shared_ptr<AgentLink>& link,
                      const wire::Exited& exited) {
    const Generation* generation = draft.job.generation();
    const std::int32_t per_node = job_.spec.processes_per_node();
    const bool mine = exited.rank >= 0 && exited.rank / per_node == link->node_rank;
    if (!mine || generation == nullptr || generation->number != exited.generation) {
        fence(link, "EXITED of a rank that is not this agent's");
        return;
    }
    const bool new_here = static_cast<std::size_t>(exited.rank) < generation->exited.size() &&
                          !generation->exited[static_cast<std::size_t>(exited.rank)];
    if (new_here) {
        event::RankExited out;
        out.attempt = draft.job.attempt()->number;
        out.generation = exited.generation;
        out.rank = exited.rank;
        out.node = link->node;
        out.exit_code = exited.exit_code;
        out.signal = exited.signal;
        out.stopped = exited.stopped;
        out.oom = exited.oom;
        out.at = exited.time;
        out.log_tail = printable(exited.log_tail.substr(
            exited.log_tail.size() - std::min(exited.log_tail.size(), limits::kLogTailBytes)));
        add(draft, std::move(out));
    }
    const std::uint64_t number = exited.event;
    draft.effects.push_back([link, number] { link->acknowledge_event(number); });
}

void JobActor::fault(Draft& draft, const std::shared_ptr<AgentLink>& link,
                     const wire::Fault& fault) {
    event::FaultSeen seen;
    seen.attempt = draft.job.attempt()->number;
    seen.generation = fault.generation;
    seen.rank = fault.rank;
    seen.node = link->node;
    seen.cause_class = parse_cause_class(fault.cause_class)
                           ? fault.cause_class
                           : std::string{to_string(CauseClass::internal)};
    seen.message = printable(std::string_view{fault.message}.substr(0, limits::kLogTailBytes));
    seen.at = fault.time;
    add(draft, std::move(seen));
    const std::uint64_t number = fault.event;
    draft.effects.push_back([link, number] { link->acknowledge_event(number); });
}

void JobActor::checkpoint(Draft& draft, const std::shared_ptr<AgentLink>& link,
                          const wire::CheckpointSaved& saved) {
    if (saved.step > draft.job.checkpoint_step && current(*link, saved.generation)) {
        event::CheckpointSaved out;
        out.attempt = draft.job.attempt()->number;
        out.generation = saved.generation;
        out.step = saved.step;
        out.path = printable(saved.path).substr(0, limits::kPathBytes);
        add(draft, std::move(out));
    }
    const std::uint64_t number = saved.event;
    draft.effects.push_back([link, number] { link->acknowledge_event(number); });
}

void JobActor::keys(const std::shared_ptr<AgentLink>& link, const wire::KeyRequest& request) {
    if (!current(*link, request.generation) || request.rank < 0 ||
        request.rank / job_.spec.processes_per_node() != link->node_rank) {
        wire::KeyReply refusal;
        refusal.id = request.id;
        refusal.error = to_string(Errc::conflict);
        refusal.message = "fenced: not a rank of the current generation";
        link->send(refusal);
        return;
    }
    if (!exchange_ || exchange_generation_ != request.generation) {
        exchange_.emplace(job_.spec.world_size(), context_.clock.wall());
        exchange_generation_ = request.generation;
    }
    send_answers(exchange_->request(link->node_rank, request, context_.clock.steady()));
}

void JobActor::send_answers(const std::vector<KeyExchange::Answer>& answers) {
    for (const auto& answer : answers) {
        const auto link = links_.find(answer.node_rank);
        if (link != links_.end()) {
            link->second->send(answer.reply);
        }
    }
}

// Whether every rank of the node has ended: its agent may leave then.
bool JobActor::node_ended(const Job& job, std::int32_t node_rank) {
    const Generation* generation = job.generation();
    const std::int32_t per_node = job.spec.processes_per_node();
    for (std::int32_t local = 0; generation != nullptr && local < per_node; ++local) {
        if (!generation->exited[static_cast<std::size_t>(node_rank * per_node + local)]) {
            return false;
        }
    }
    return generation != nullptr;
}

// An agent that has just lost its connection comes back and tells what happened, with the telemetry
// that goes before it; only after that its files speak for it.
bool JobActor::gone_for_good(std::int32_t node_rank) const {
    const auto since = gone_.find(node_rank);
    return since != gone_.end() && context_.clock.steady() - since->second >= limits::kAgentLost;
}

// A node whose agent has been silent for too long is lost, whatever the scheduler says.
void JobActor::note_lost_agents(Draft& draft) {
    const auto now = context_.clock.steady();
    const Attempt* attempt = draft.job.attempt();
    for (const auto& [node_rank, claim] : attempt->claims) {
        if (!links_.contains(node_rank) && !gone_.contains(node_rank)) {
            gone_[node_rank] = now;  // the daemon was restarted: the patience starts now
        }
    }
    for (const auto& [node_rank, since] : gone_) {
        const auto claim = attempt->claims.find(node_rank);
        if (now - since < limits::kAgentLost || claim == attempt->claims.end() ||
            node_ended(draft.job, node_rank)) {
            continue;
        }
        event::FaultSeen lost;
        lost.attempt = attempt->number;
        lost.generation = draft.job.generation() != nullptr ? draft.job.generation()->number : 0;
        lost.node = claim->second.node;
        lost.cause_class = to_string(CauseClass::node_lost);
        lost.message = "the agent of " + claim->second.node + " has not been heard for " +
                       std::to_string(std::chrono::seconds{limits::kAgentLost}.count()) + " s";
        lost.at = context_.clock.wall();
        add(draft, std::move(lost));
        return;
    }
}

// Agents that are gone cannot be asked any more: what their ranks did is in their result files.
void JobActor::read_results(Draft& draft, const Observation& seen) {
    const Attempt* attempt = draft.job.attempt();
    const Generation* generation = draft.job.generation();
    // A scheduler that has forgotten the attempt proves no loss, but what lies there is true.
    const bool absent = seen.kind == Observation::Kind::absent;
    const bool over = !absent && seen.state == AllocationState::ended;
    for (std::int32_t node = 0; node < job_.spec.resources.nodes; ++node) {
        const bool lost = std::find(seen.lost_nodes.begin(), seen.lost_nodes.end(), node) !=
                          seen.lost_nodes.end();
        if ((!over && !absent && !lost && !gone_for_good(node)) || links_.contains(node)) {
            continue;
        }
        const auto claim = attempt->claims.find(node);
        const std::string name =
            claim == attempt->claims.end() ? "node " + std::to_string(node) : claim->second.node;
        if (auto result = read_result(attempt->directory, node);
            result && generation != nullptr && result->generation == generation->number) {
            for (auto& exit : result->exits) {
                event::RankExited out;
                out.attempt = attempt->number;
                out.generation = exit.generation;
                out.rank = exit.rank;
                out.node = name;
                out.exit_code = exit.exit_code;
                out.signal = exit.signal;
                out.stopped = exit.stopped;
                out.oom = exit.oom;
                out.at = exit.time;
                out.log_tail = printable(exit.log_tail);
                add(draft, std::move(out));
                attempt = draft.job.attempt();
                generation = draft.job.generation();
            }
        }
        if ((over || lost) && !node_ended(draft.job, node) && !stop_sent_) {
            event::FaultSeen fault;
            fault.attempt = attempt->number;
            fault.generation = generation != nullptr ? generation->number : 0;
            const auto words = read_gave_up(
                attempt->directory, node,
                claim == attempt->claims.end() ? std::string{} : claim->second.incarnation);
            fault.node = words ? words->node : name;
            fault.cause_class = to_string(CauseClass::node_lost);
            fault.message = "the agent of " + fault.node + " ended without a result";
            for (const std::string& why : {words ? words->reason : std::string{}, seen.message}) {
                fault.message += why.empty() ? "" : ": " + why;
            }
            if (!attempt->allocation.empty()) {
                blame_memory(*attempt, fault);
            }
            fault.at = context_.clock.wall();
            add(draft, std::move(fault));
            return;
        }
    }
}

// Slurm ends all of a job that passes its memory and calls it failed; only its logs say of what.
void JobActor::blame_memory(const Attempt& attempt, event::FaultSeen& fault) const {
    const auto found = find_memory_evidence(attempt.directory, job_.spec.resources.nodes);
    if (!found) {
        return;
    }
    fault.cause_class = to_string(CauseClass::oom);
    fault.message = "Slurm ended the job for its memory: " + found->line;
    const auto claim = attempt.claims.find(found->node_rank);
    if (claim != attempt.claims.end()) {
        fault.node = claim->second.node;
        fault.rank = job_.spec.processes_per_node() == 1 ? found->node_rank : -1;
    }
}

}  // namespace lockstep
