// size: one small function per message of the agents' protocol
// What agents say to their job, and what the job answers.
#include "daemon/control/attempt_files.hpp"
#include "daemon/control/job_actor.hpp"
#include "daemon/control/machine/rank_exit.hpp"
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
    const Generation* now = job_.live_generation();
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

void JobActor::acknowledge_late(const std::shared_ptr<AgentLink>& link,
                                const wire::AgentMessage& message) {
    if (std::holds_alternative<wire::Hello>(message)) {
        link->send_text(welcome(*link));
        link->send(wire::Stop{"the attempt is over", 0});
    }
    std::visit(
        [&](const auto& one) {
            if constexpr (requires { one.event; }) {
                link->acknowledge_event(one.event);
            }
        },
        message);
}

void JobActor::take(Draft& draft, AgentInput& input) {
    const auto& link = input.link;
    if (!link->open() && !std::holds_alternative<wire::Bye>(input.message)) {
        return;
    }
    if (draft.job().attempt() != nullptr && link->attempt() < draft.job().attempt()->number) {
        // Of an attempt that is over: it delivers what it still has, and goes.
        acknowledge_late(link, input.message);
        return;
    }
    if (const auto* message = std::get_if<wire::Hello>(&input.message)) {
        hello(draft, link, *message);
        return;
    }
    const auto known = run_.links.find(link->node_rank);
    if (known == run_.links.end() || known->second != link) {
        // HELLO is in this draft too (not accepted yet) or was superseded: once more, in order.
        if (link->hello_pending) {
            deferred_.push_back(input);  // a copy: the draft may be tried again
        }
        return;
    }
    if (draft.job().spec.resources.is_elastic() && draft.job().attempt() != nullptr &&
        draft.job().attempt()->lost.contains(link->node_rank)) {
        hear_lost(draft, link, input.message);
        return;
    }
    if (const auto* m = std::get_if<wire::Join>(&input.message)) {
        join(draft, link, *m);
    } else if (const auto* m1 = std::get_if<wire::Ready>(&input.message)) {
        ready(draft, link, *m1);
    } else if (const auto* m2 = std::get_if<wire::Started>(&input.message)) {
        node_started(draft, link, *m2);
    } else if (const auto* m3 = std::get_if<wire::Exited>(&input.message)) {
        exited(draft, link, *m3);
    } else if (const auto* m4 = std::get_if<wire::Fault>(&input.message)) {
        fault(draft, link, *m4);
    } else if (const auto* m5 = std::get_if<wire::CheckpointSaved>(&input.message)) {
        checkpoint(draft, link, *m5);
    } else if (const auto* m6 = std::get_if<wire::Done>(&input.message)) {
        draft.heard.emplace_back(link, m6->event);
        draft.effects.push_back([link] { link->done = true; });
    } else if (const auto* m7 = std::get_if<wire::KeyRequest>(&input.message)) {
        // Not before the append: an add() must not count twice when that is tried again.
        draft.effects.push_back([this, link, request = *m7] { keys(link, request); });
    } else if (const auto* m8 = std::get_if<wire::Examined>(&input.message)) {
        examined(link, *m8);
    } else if (const auto* m9 = std::get_if<wire::GpuXid>(&input.message)) {
        gpu_xid(draft, link, *m9);
    } else if (const auto* m10 = std::get_if<wire::EvidenceSaved>(&input.message)) {
        evidence_saved(link, *m10);
    } else if (const auto* m11 = std::get_if<wire::TableRequest>(&input.message)) {
        send_table(link, *m11);
    } else if (const auto* m12 = std::get_if<wire::Bye>(&input.message)) {
        bye(draft, link, *m12);
    } else if (const auto* m13 = std::get_if<wire::Checked>(&input.message)) {
        checked(draft, link, *m13);
    } else if (const auto* m14 = std::get_if<wire::Probed>(&input.message)) {
        probed(draft, link, *m14);
    } else if (const auto* m15 = std::get_if<wire::PairTested>(&input.message)) {
        pair_tested(draft, link, *m15);
    } else if (const auto* m18 = std::get_if<wire::Warned>(&input.message)) {
        warned(draft, link, *m18);
    } else if (const auto* m16 = std::get_if<wire::CanSave>(&input.message)) {
        can_save(draft, link, *m16);
    } else if (const auto* m17 = std::get_if<wire::SaveAsked>(&input.message)) {
        save_asked(draft, link, *m17);
    }
}

void JobActor::take(Draft&, AgentGoneInput& input) {
    const auto known = run_.links.find(input.link->node_rank);
    if (known != run_.links.end() && known->second == input.link) {
        run_.gone[known->first] = context_.clock.steady();
        run_.rendezvous.disconnected(known->first);
        run_.preflight.gone(known->first);
        run_.pairs.gone(known->first);
        run_.links.erase(known);
    }
}

void JobActor::take(Draft& draft, CancelInput& input) {
    if (!is_final(draft.job().state) && draft.job().cancel_requested_at == 0) {
        event::CancelRequested cancel;
        cancel.by = input.by;
        add(draft, std::move(cancel));
    }
    draft.answers.push_back(input.done);
}

void JobActor::take(Draft& draft, RestartInput& input) {
    const Generation* live = draft.job().live_generation();
    Status answer;
    if (live == nullptr || live->first_failure || draft.job().cancel_requested_at != 0) {
        if (draft.job().state != JobState::restarting && draft.job().state != JobState::requeued) {
            answer = fail(Errc::conflict, "nothing runs that could be started again: the job is " +
                                              std::string{to_string(draft.job().state)});
        }
    } else {
        event::RestartRequested restart;
        restart.attempt = draft.job().attempt()->number;
        restart.generation = live->number;
        restart.by = input.by;
        add(draft, std::move(restart));  // asked for twice: once
    }
    draft.answers.push_back([done = input.done, answer](Status stored) {
        done(stored && !answer ? answer : std::move(stored));
    });
}

void JobActor::take(Draft& draft, DependencyInput& input) {
    event::DependencyFailed failed;
    failed.after = input.after;
    failed.message = input.after + ", which it was to run after, has not succeeded";
    add(draft, std::move(failed));
}

void JobActor::take(Draft& draft, LookInput&) {
    look_at_saving(draft);
    release_if_ready(draft, nullptr);
}

void JobActor::refuse(Draft& draft, const std::shared_ptr<AgentLink>& link,
                      const wire::Hello& hello, std::string why) {
    link->node = printable(std::string_view{hello.node}.substr(0, limits::kTextBytes));
    const Attempt* attempt = draft.job().attempt();
    if (hello.node_rank >= 0 && hello.node_rank < draft.job().spec.resources.allocated_nodes()) {
        run_.refused[hello.node_rank] = why;
    }
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
        hello.node_rank < 0 || hello.node_rank >= job.spec.resources.allocated_nodes() ||
        hello.incarnation.empty() || hello.incarnation.size() > limits::kTextBytes ||
        hello.allocation.size() > limits::kTextBytes) {
        return "not a node of the current attempt";
    }
    if (const auto lost = attempt->lost.find(hello.node_rank);
        lost != attempt->lost.end() && !attempt->may_return(hello.node_rank)) {
        // Another node may have its ranks by now: what it still does must not count.
        return "this node was given up: " + lost->second.message;
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
    if (std::string why = unwelcome(draft.job(), *link, hello); !why.empty()) {
        refuse(draft, link, hello, std::move(why));
        return;
    }
    const Attempt* attempt = draft.job().attempt();
    if (!attempt->claims.empty() && attempt->allocation != hello.allocation) {
        // A second copy of the attempt: the scheduler took it twice. The first claim has it.
        refuse(draft, link, hello,
               "attempt " + std::to_string(attempt->number) + " runs in allocation " +
                   attempt->allocation + ", this is " + printable(hello.allocation));
        return;
    }
    if (attempt->claims.empty() && !hello.allocation.empty() &&
        !context_.scheduler.may_claim(job_.id, attempt->number, hello.allocation)) {
        refuse(draft, link, hello,
               "allocation " + printable(hello.allocation) + " is a second copy of attempt " +
                   std::to_string(attempt->number) + " and is being ended");
        return;
    }
    if (draft.job().state == JobState::queued || draft.job().state == JobState::held) {
        // The scheduler has started it and we hear of it from the agent first.
        event::AttemptPlaced placed;
        placed.attempt = attempt->number;
        placed.scheduler_id = !hello.allocation.empty()
                                  ? hello.allocation
                                  : std::string{context_.scheduler.name()} + "-" + job_.id.value +
                                        "-a" + std::to_string(attempt->number);
        add(draft, std::move(placed));
    }
    if (welcome_back(draft, link, hello)) {
        return;
    }
    const auto claim = attempt->claims.find(hello.node_rank);
    if (claim != attempt->claims.end() && claim->second.incarnation != hello.incarnation) {
        refuse(draft, link, hello,
               "node " + std::to_string(hello.node_rank) + " was claimed by another agent");
        return;
    }
    link->node = printable(std::string_view{hello.node}.substr(0, limits::kTextBytes));
    link->incarnation = hello.incarnation;
    link->pid = hello.pid;
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
    const std::int32_t running = hello.ranks_running ? hello.generation : 0;
    draft.effects.push_back([this, link, running, capable = hello.preflight] {
        link->hello_pending = false;
        if (!link->open()) {
            return;
        }
        accept(link, capable);
        if (running != 0 && run_.rendezvous.started(link->node_rank, running)) {
            inputs_.emplace_back(LookInput{});  // it may be the last that was not ready
        }
        link->send_text(welcome(*link));
        if (run_.stopping || run_.generation.abort_sent) {
            link->abort_sent.reset();
            run_.generation.abort_due = true;
            inputs_.emplace_back(LookInput{});
        }
    });
}

// HELLO is durable: this is the agent of its node from now on.
void JobActor::accept(const std::shared_ptr<AgentLink>& link, bool capable) {
    auto& place = run_.links[link->node_rank];
    if (place && place != link) {
        place->close("another connection of the same agent");
    }
    place = link;
    run_.gone.erase(link->node_rank);
    run_.refused.erase(link->node_rank);
    link->accepted = true;
    link->since = context_.clock.steady();
    link->place.reset();
    run_.unheard.erase(link->node_rank);
    run_.rendezvous.connected(link->node_rank);
    expect_facts(*link, capable);
}

// Those of the moment when its first agent called in: all nodes of an attempt have the same.
const SecretStore::Values& JobActor::secrets_now() {
    const std::int32_t attempt = job_.attempt()->number;
    if (!job_.spec.secrets.empty() && attempt != secrets_attempt_ && context_.secrets != nullptr) {
        secrets_attempt_ = attempt;
        secrets_ = context_.secrets->values(job_.user, job_.spec.secrets);
    }
    return secrets_;
}

std::string JobActor::welcome(const AgentLink& link) {
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
            ? (std::filesystem::path{job_.attempt()->directory}.parent_path() / "checkpoints")
                  .string()
            : job_.spec.checkpoint.directory;
    out.preflight = wants_preflight();
    if (spec_text_.empty()) {
        Json spec = to_json(job_.spec);
        spec.erase("notify");  // with its secrets no matter of the nodes
        spec_text_ = dump_json(spec);
    }
    Signatures* const signatures = context_.scheduler.signatures();
    if (!job_.signature.empty() && signatures != nullptr) {
        if (document_.empty()) {
            document_ = signatures->document(job_.user, job_.signature).value_or("");
        }
        out.document = document_;  // without it the agent says what is wrong
    }
    const bool late =
        finished_ || job_.attempt() == nullptr || job_.attempt()->number != link.attempt();
    for (const auto& [name, value] : late ? SecretStore::Values{} : secrets_now()) {
        out.secret_names.push_back(name);
        out.secret_values.push_back(value);
    }
    return wire::encode_welcome(out, spec_text_);
}

void JobActor::exited(Draft& draft, const std::shared_ptr<AgentLink>& link,
                      const wire::Exited& exited) {
    draft.heard.emplace_back(link, exited.event);
    const Generation* generation = draft.job().generation();
    if (generation != nullptr && exited.generation > 0 &&
        (exited.generation < generation->number ||
         (exited.generation == generation->number && !generation->open()))) {
        return;  // of a generation that is over
    }
    const std::int32_t per_node = job_.spec.ranks_per_node();
    const bool mine = generation != nullptr && generation->number == exited.generation &&
                      exited.rank >= 0 &&
                      generation->slot_of(exited.rank / per_node) == link->node_rank;
    if (!mine) {
        fence(link, "EXITED of a rank that is not this agent's");
        return;
    }
    const bool new_here = static_cast<std::size_t>(exited.rank) < generation->exited.size() &&
                          !generation->exited[static_cast<std::size_t>(exited.rank)];
    if (new_here) {
        event::RankExited out = rank_exited(exited);
        out.attempt = draft.job().attempt()->number;
        out.node = link->node;
        add(draft, std::move(out));
    }
}

void JobActor::fault(Draft& draft, const std::shared_ptr<AgentLink>& link,
                     const wire::Fault& fault) {
    event::FaultSeen seen;
    seen.attempt = draft.job().attempt()->number;
    seen.generation = fault.generation;
    seen.rank = fault.rank;
    seen.node = link->node;
    const auto kind = parse_cause_class(fault.cause_class);
    const bool persons = kind == CauseClass::restart_requested ||
                         kind == CauseClass::cancelled_by_user || kind == CauseClass::none;
    seen.cause_class =
        kind && !persons ? fault.cause_class : std::string{to_string(CauseClass::internal)};
    seen.message = printable(std::string_view{fault.message}.substr(0, limits::kLogTailBytes));
    seen.at = std::max<UnixMillis>(fault.time, 0);
    if (seen.cause_class == to_string(CauseClass::node_lost)) {
        seen.slot = link->node_rank;  // its agent says so itself: a rank there cannot be ended
    }
    const std::int32_t slot = seen.slot;
    // The first ends the generation, or the attempt; a node is lost once.
    const Attempt& attempt = *draft.job().attempt();
    const Generation* live = draft.job().live_generation();
    const bool of_live = live != nullptr && live->number == seen.generation;
    const bool ends_attempt =
        !of_live && !attempt.fault && (seen.generation == 0 || attempt.generations.empty());
    const bool too_many = slot < 0 && !ends_attempt &&
                          (of_live ? live->faults : attempt.stray_faults) >= limits::kFaultEvents;
    if (!too_many && add(draft, std::move(seen)) && slot >= 0) {
        give_up(draft, slot);
    }
    draft.heard.emplace_back(link, fault.event);
}

void JobActor::warned(Draft& draft, const std::shared_ptr<AgentLink>& link,
                      const wire::Warned& warned) {
    event::WarningGiven out;
    out.attempt = draft.job().attempt()->number;
    out.generation = warned.generation;
    out.rank = std::clamp(warned.rank, -1, draft.job().world_size() - 1);
    out.node = link->node;
    out.message = printable(std::string_view{warned.message}.substr(0, limits::kWarningBytes));
    add(draft, std::move(out));
    draft.heard.emplace_back(link, warned.event);
}

void JobActor::gpu_xid(Draft& draft, const std::shared_ptr<AgentLink>& link,
                       const wire::GpuXid& xid) {
    event::GpuXid out;
    out.attempt = draft.job().attempt()->number;
    out.generation = xid.generation;
    out.rank = std::clamp(xid.rank, -1, draft.job().world_size() - 1);
    out.node = link->node;
    out.gpu = xid.gpu;
    out.xid = xid.xid;
    out.at = std::max<UnixMillis>(xid.time, 0);
    add(draft, std::move(out));
    draft.heard.emplace_back(link, xid.event);
}

void JobActor::checkpoint(Draft& draft, const std::shared_ptr<AgentLink>& link,
                          const wire::CheckpointSaved& saved) {
    if (saved.step > draft.job().checkpoint_step && current(*link, saved.generation) &&
        (!run_.checkpoint || saved.step >= run_.checkpoint->step)) {
        run_.checkpoint.emplace();
        run_.checkpoint->attempt = draft.job().attempt()->number;
        run_.checkpoint->generation = saved.generation;
        run_.checkpoint->step = saved.step;
        run_.checkpoint->path = printable(saved.path).substr(0, limits::kPathBytes);
        tell_checkpoint(draft, false);
    }
    draft.heard.emplace_back(link, saved.event);
}

void JobActor::keys(const std::shared_ptr<AgentLink>& link, const wire::KeyRequest& request) {
    if (!current(*link, request.generation) || request.rank < 0 ||
        job_.live_generation()->slot_of(request.rank / job_.spec.ranks_per_node()) !=
            link->node_rank) {
        wire::KeyReply refusal;
        refusal.id = request.id;
        refusal.error = to_string(Errc::conflict);
        refusal.message = "fenced: not a rank of the current generation";
        link->send(refusal);
        return;
    }
    if (!run_.generation.keys) {  // begin_generation() takes the last one's away
        run_.generation.keys.emplace(job_.world_size(), context_.clock.wall());
    }
    send_answers(run_.generation.keys->request(link->node_rank, request, context_.clock.steady()));
}

void JobActor::send_answers(const std::vector<KeyExchange::Answer>& answers) {
    for (const auto& answer : answers) {
        const auto link = run_.links.find(answer.node_rank);
        if (link != run_.links.end()) {
            link->second->send(answer.reply);
        }
    }
}

}  // namespace lockstep
