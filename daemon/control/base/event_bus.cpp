#include "daemon/control/base/event_bus.hpp"

#include "job/model/spec/notify.hpp"
#include "job/model/spec/spec_environment.hpp"
#include "job/model/spec/sweep.hpp"

#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

std::shared_ptr<void> EventBus::subscribe(JobStream::Sink sink) {
    const std::uint64_t key = sinks_->next++;
    sinks_->list[key] = std::make_shared<JobStream::Sink>(std::move(sink));
    const std::weak_ptr<Sinks> sinks = sinks_;
    const auto leave = [sinks, key](void*) {
        if (const auto alive = sinks.lock()) {
            alive->list.erase(key);
        }
    };
    return std::shared_ptr<void>{nullptr, leave};
}

void EventBus::publish(const StreamMessage& message) {
    std::vector<std::shared_ptr<JobStream::Sink>> now;
    now.reserve(sinks_->list.size());
    for (const auto& [key, sink] : sinks_->list) {
        now.push_back(sink);
    }
    for (const auto& sink : now) {
        (*sink)(message);
    }
}

std::string public_text(const Event& event) {
    Json json = to_json(event);
    if (std::holds_alternative<event::Submitted>(event.data)) {
        mask_environment(json["data"]["spec"]);
        mask_notify(json["data"]["spec"]);
        if (const auto swept = json["data"].find("sweep_parameters"); swept != json["data"].end()) {
            mask_parameters(*swept);
        }
    }
    return dump_json(json);
}

StreamMessage stream_message(const Event& event, const std::string& user) {
    StreamMessage message;
    message.seq = event.seq;
    message.topic = "job." + event.job.value;
    message.event = to_string(event.kind());
    message.data = std::make_shared<const std::string>(public_text(event));
    message.user = user;
    return message;
}

void renumber(StreamMessage& message, Seq seq) {
    constexpr std::string_view kNone = "{\"seq\":0,";  // as to_json(Event) begins
    const std::string& text = *message.data;
    if (text.starts_with(kNone)) {
        std::string out = "{\"seq\":" + std::to_string(seq) + ",";
        out.append(text, kNone.size());
        message.data = std::make_shared<const std::string>(std::move(out));
    }
    message.seq = seq;
}

}  // namespace lockstep
