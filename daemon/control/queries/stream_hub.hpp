// The stream of events and of telemetry: who follows what, what is made only while somebody does,
// and the stored events for those who come back. Control thread only; whoever follows may leave
// after this has gone.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/base/job_stream.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class StreamHub final : public JobStream {
  public:
    StreamHub(ControlContext& context, const JobRegistry& registry)
        : context_(context), registry_(registry) {}

    std::shared_ptr<void> subscribe(Sink sink) override;
    std::shared_ptr<void> follow(const Caller& caller, const std::string& topic) override;
    Task<Result<std::vector<StreamMessage>>> replay(std::int64_t after, std::size_t limit) override;
    std::int64_t last_seq() const override { return context_.store.last_seq(); }

    // The job has these new events.
    void publish(const std::string& user, const std::vector<Event>& events);
    // The job has new telemetry: its ranks not too often, steps that are complete.
    void reported(JobActor& actor);
    // The job is over: its ranks as they are at the end. It is unfinished in the registry still.
    void finish(JobActor& actor);
    // The job, which was over, is none any more.
    void removed(const std::string& job, const std::string& user);

  private:
    void publish_ranks(JobActor& actor, bool now);
    void publish_steps(const std::string& id);
    void publish_steps_later();

    struct Followed {
        std::map<std::string, std::size_t> topics;  // → how many
        // job → metric → when its last step was published
        std::map<std::string, std::map<std::string, std::chrono::steady_clock::time_point>> steps;
        void leave(const std::string& topic);
    };

    ControlContext& context_;
    const JobRegistry& registry_;
    std::shared_ptr<Followed> followed_ = std::make_shared<Followed>();
    std::map<std::string, std::chrono::steady_clock::time_point> published_;  // ranks, by job
    net::steady_timer steps_timer_{context_.io};
    bool steps_armed_ = false;
};

}  // namespace lockstep
