#include "job/agent/node/outbox.hpp"

#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

void Outbox::control(const wire::AgentMessage& message) {
    control_.push_back(wire::encode(message));
}

void Outbox::control_last(const wire::AgentMessage& message) {
    last_control_.push_back(wire::encode(message));
}

template <class M>
void Outbox::numbered(M message, bool after_batches) {
    message.event = ++last_event_;
    events_[last_event_] = {wire::encode(wire::AgentMessage{std::move(message)}),
                            after_batches ? last_batch_ : 0};
}
template void Outbox::numbered(wire::Exited, bool);
template void Outbox::numbered(wire::Fault, bool);
template void Outbox::numbered(wire::CheckpointSaved, bool);
template void Outbox::numbered(wire::GpuXid, bool);
template void Outbox::numbered(wire::Warned, bool);
template void Outbox::numbered(wire::SaveAsked, bool);
template void Outbox::numbered(wire::Done, bool);
template void Outbox::numbered(wire::Bye, bool);

void Outbox::batch(const Batch& batch) {
    KeptBatch kept{encode_batch(batch), batch.rows()};
    batch_bytes_ += kept.bytes.size();
    last_batch_ = batch.seq;
    batches_[batch.seq] = std::move(kept);
    while (batch_bytes_ > batch_bytes_cap_ && batches_.size() > 1) {
        const auto oldest = batches_.begin();
        if (dropped_rows_ == 0) {
            log::warn("telemetry dropped, the daemon has not acknowledged for too long",
                      {{"rows", oldest->second.rows}});
        }
        dropped_rows_ += oldest->second.rows;
        batch_bytes_ -= oldest->second.bytes.size();
        batches_.erase(oldest);
    }
}

std::optional<Outbox::Frame> Outbox::next() {
    if (!control_.empty()) {
        Frame frame{false, std::move(control_.front())};
        control_.pop_front();
        return frame;
    }
    if (auto frame = next_event()) {
        return frame;
    }
    if (auto frame = next_batch()) {
        return frame;
    }
    if (gpus_) {
        Frame frame{true, std::move(*gpus_)};
        gpus_.reset();
        return frame;
    }
    if (!last_control_.empty()) {
        Frame frame{false, std::move(last_control_.front())};
        last_control_.pop_front();
        return frame;
    }
    return std::nullopt;
}

std::optional<Outbox::Frame> Outbox::next_event() {
    const auto found = events_.upper_bound(sent_event_);
    if (found == events_.end()) {
        return std::nullopt;
    }
    const auto unsent = batches_.upper_bound(sent_batch_);
    if (unsent != batches_.end() && unsent->first <= found->second.after_batch) {
        return std::nullopt;
    }
    sent_event_ = found->first;
    return Frame{false, found->second.bytes};
}

std::optional<Outbox::Frame> Outbox::next_batch() {
    const auto found = batches_.upper_bound(sent_batch_);
    if (found == batches_.end()) {
        return std::nullopt;
    }
    sent_batch_ = found->first;
    return Frame{true, found->second.bytes};
}

void Outbox::reconnected(std::uint64_t acked_batch) {
    acknowledge(0, acked_batch);
    sent_event_ = 0;
    sent_batch_ = acked_batch;
}

void Outbox::acknowledge(std::uint64_t event, std::uint64_t batch) {
    events_.erase(events_.begin(), events_.upper_bound(event));
    const auto end = batches_.upper_bound(batch);
    for (auto it = batches_.begin(); it != end; ++it) {
        batch_bytes_ -= it->second.bytes.size();
    }
    batches_.erase(batches_.begin(), end);
}

}  // namespace lockstep
