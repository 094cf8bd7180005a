#include "daemon/control/actor/agent_link.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/machine/rank_owner.hpp"
#include "job/base/log.hpp"
#include "job/model/wire/gpu_batch.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Whether the attempt has had this generation. Telemetry of others is refused: each number would
// get rows and chunks of its own, and an agent could name as many as it likes.
bool has_begun(const Job& job, std::int32_t attempt, std::uint32_t generation) {
    const Generation* newest = newest_generation(job, attempt);
    return generation <= (newest != nullptr ? static_cast<std::uint32_t>(newest->number) : 0);
}

// What NCCL's RAS tells one agent of all ranks.
bool is_of_any_rank(const Batch& batch, std::size_t row, const BatchColumn& column) {
    return batch.steps[row] < 0 && (column.name == "nccl_collectives" || column.name == "nccl_lag");
}

// Whether nothing of the row is to be left out. `own`: its rank is the agent's.
bool may_say(const Batch& batch, std::size_t row, bool own) {
    bool any = own;  // a step alone of another's rank is nothing that may be said
    for (std::size_t i = 0; i < batch.columns.size() && !own; ++i) {
        if (batch.columns[i].present[row] != 0) {
            if (!is_of_any_rank(batch, row, batch.columns[i])) {
                return false;
            }
            any = true;
        }
    }
    return any;
}

// Takes out of the batch what one node's agent may not say of another node's ranks: their losses
// and steps would be whatever that node wants. Returns how many values were; their rows go with
// them, and the batch keeps its number.
template <class IsOwn>
std::size_t leave_out_foreign(Batch& batch, const IsOwn& is_own) {
    std::size_t foreign = 0;
    Batch kept;
    kept.seq = batch.seq;
    kept.generation = batch.generation;
    kept.node_rank = batch.node_rank;
    for (std::size_t row = 0; row < batch.rows(); ++row) {
        const bool own = is_own(batch.ranks[row]);
        bool begun = false;
        for (const BatchColumn& column : batch.columns) {
            if (column.present[row] == 0) {
                continue;
            }
            if (!own && !is_of_any_rank(batch, row, column)) {
                ++foreign;
                continue;
            }
            if (!std::exchange(begun, true)) {
                kept.add_row(batch.ranks[row], batch.steps[row], batch.times[row]);
            }
            kept.set(column.name, column.values[row]);
        }
        if (own && !begun) {  // a step alone
            kept.add_row(batch.ranks[row], batch.steps[row], batch.times[row]);
        }
    }
    batch = std::move(kept);
    return foreign;
}

}  // namespace

AgentLink::AgentLink(std::shared_ptr<JobActor> actor, std::int32_t attempt,
                     std::shared_ptr<AgentPeer> peer, std::string remote, OnBatch on_batch,
                     OnGpus on_gpus)
    : Agent(attempt, std::move(remote)),
      actor_(std::move(actor)),
      peer_(std::move(peer)),
      on_batch_(std::move(on_batch)),
      on_gpus_(std::move(on_gpus)) {}

void AgentLink::refuse(std::string_view what, std::string_view why) {
    log::warn(
        "agent sent something unusable",
        {{"job", actor_->job().id.value}, {"remote", remote()}, {"what", what}, {"why", why}});
    close(std::string{what});
}

void AgentLink::on_text(std::string_view bytes) {
    auto message = wire::decode_agent(bytes);
    if (!message) {
        refuse("bad message", message.error().message);
        return;
    }
    const bool hello = std::holds_alternative<wire::Hello>(*message);
    if (hello != (node_rank < 0)) {
        refuse(hello ? "a second HELLO" : "a message before HELLO", "");
        return;
    }
    if (hello) {
        // Provisional until the actor has accepted it: later messages of this link may follow at
        // once.
        node_rank = std::get<wire::Hello>(*message).node_rank;
    }
    last_heard = actor_->context().clock.steady();
    if (const auto* beat = std::get_if<wire::Beat>(&*message)) {
        on_beat(*beat);
        return;
    }
    actor_->post(AgentInput{shared_from_this(), std::move(*message)});
}

// Of thousands of agents one comes in every moment: it wakes nobody. Silence is noticed at the
// job's own tick.
void AgentLink::on_beat(const wire::Beat& beat) {
    if (beat.asks_us != 0) {
        send(wire::Clock{beat.asks_us, actor_->context().clock.wall_us()});
    }
    if (beat.offset_error_us >= 0) {
        clock_offset = ClockOffset{beat.offset_us, beat.offset_error_us};
    }
    if (accepted) {
        actor_->context().metrics.agent_dropped_reports.Increment(
            static_cast<double>(actor_->newly_dropped(*this, beat.dropped_rows)));
    }
}

// The newest of a node is what /metrics shows; history has its part. Nothing is acknowledged. A
// node's GPUs are used by its own ranks of the newest generation alone: what it says of others, or
// of those that it had before it was lost, is left out, or its values would be another node's.
void AgentLink::on_gpus(std::string_view bytes) {
    auto batch = decode_gpu_batch(bytes);
    if (!batch) {
        actor_->context().metrics.ingest_dropped(telemetry::DropReason::bad_frame, 1);
        refuse("bad GPU frame", batch.error().message);
        return;
    }
    if (accepted && batch->node_rank == static_cast<std::uint32_t>(node_rank)) {
        last_heard = actor_->context().clock.steady();
        const Generation* newest = newest_generation(actor_->job(), attempt());
        const std::size_t foreign = std::erase_if(batch->uses, [&](const GpuUse& use) {
            return !runs_rank(newest, actor_->job().spec.ranks_per_node(), node_rank, use.rank);
        });
        if (foreign > 0) {
            actor_->context().metrics.ingest_dropped(telemetry::DropReason::bad_frame, foreign);
        }
        on_gpus_(shared_from_this(), *batch);
        actor_->context().gpus.take({actor_->job().id.value, node_rank}, node, std::move(*batch),
                                    actor_->context().now_seconds());
    }
}

void AgentLink::on_binary(std::string_view bytes) {
    if (is_gpu_batch(bytes)) {
        on_gpus(bytes);
        return;
    }
    auto batch = decode_batch(bytes);
    if (!batch) {
        actor_->context().metrics.ingest_dropped(telemetry::DropReason::bad_frame, 1);
        refuse("bad batch", batch.error().message);
        return;
    }
    if (!accepted && !actor_->over()) {
        refuse("a batch before WELCOME", "");
        return;
    }
    if (node_rank < 0 || batch->node_rank != static_cast<std::uint32_t>(node_rank)) {
        refuse("a batch of another node", "");
        return;
    }
    if (!has_begun(actor_->job(), attempt(), batch->generation)) {
        refuse("a batch of a generation that has not begun", std::to_string(batch->generation));
        return;
    }
    last_heard = actor_->context().clock.steady();
    const Generation* of = find_generation(actor_->job(), attempt(), batch->generation);
    const auto is_own = [&](std::uint32_t rank) {
        return runs_rank(of, actor_->job().spec.ranks_per_node(), node_rank, rank);
    };
    std::string taken{bytes};
    bool clean = true;
    for (std::size_t row = 0; row < batch->rows() && clean; ++row) {
        clean = may_say(*batch, row, is_own(batch->ranks[row]));
    }
    if (!clean) {
        const std::size_t foreign = leave_out_foreign(*batch, is_own);
        actor_->context().metrics.ingest_dropped(telemetry::DropReason::bad_frame, foreign);
        taken = encode_batch(*batch);
    }
    on_batch_(shared_from_this(), std::move(*batch), std::move(taken));
}

void AgentLink::on_closed() {
    closed();
    place.reset();
    actor_->post(AgentGoneInput{shared_from_this()});
}

void AgentLink::send(const wire::DaemonMessage& message) {
    if (open()) {
        send_text(wire::encode(message));
    }
}

void AgentLink::send_text(std::string message) {
    if (open()) {
        peer_->send(WsMessage{false, std::move(message)});
    }
}

void AgentLink::send_encoded(std::shared_ptr<const std::string> message) {
    if (open()) {
        peer_->send_shared(std::move(message));
    }
}

void AgentLink::close(std::string reason) {
    if (open()) {
        peer_->close(std::move(reason));
    }
}

void AgentLink::acknowledge_event(std::uint64_t event) {
    heard(event);
    acknowledge();
}

void AgentLink::heard(std::uint64_t event) {
    acked_event_ = std::max(acked_event_, event);
    ack_due_ = true;
}

void AgentLink::acknowledge() {
    if (std::exchange(ack_due_, false)) {
        send(wire::Ack{acked_batch_, acked_event_});
    }
}

void AgentLink::acknowledge_batch(std::uint64_t seq) {
    acked_batch_ = std::max(acked_batch_, seq);
    send(wire::Ack{acked_batch_, acked_event_});
}

}  // namespace lockstep
