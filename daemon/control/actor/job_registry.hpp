// Which jobs there are: the unfinished ones with their actors, what was shown last of those that
// are over, and how many there have been of each kind. Says who may see and command which, reads
// from the store what is not in memory, and changes no job. Control thread only; every other part
// of control borrows it and goes first.
#pragma once

#include "daemon/control/base/context.hpp"
#include "daemon/control/base/control.hpp"
#include "daemon/telemetry/exposition/exposition.hpp"
#include "job/model/job.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockstep {

class JobActor;

class JobRegistry {
  public:
    using ActorPtr = std::shared_ptr<JobActor>;
    using Text = std::shared_ptr<const std::string>;
    struct Counts {
        std::array<std::uint64_t, kJobStates> states{};  // jobs that there are now
        // Since this daemon's start.
        std::uint64_t submitted = 0;
        std::array<std::uint64_t, telemetry::kFinishResults> finished{};
    };

    explicit JobRegistry(ControlContext& context) : context_(context) {}

    // How many jobs in the store are over; before any other call.
    Task<void> count_stored();
    void add(ActorPtr actor);
    // So many of those that were added are new.
    void count_submitted(std::size_t jobs) { counts_.submitted += jobs; }
    // The job has ended: of its actor only what it shows last is kept.
    void finish(JobActor& actor);
    // A job that was over, in this state, is none any more.
    void remove(const std::string& id, JobState state);

    // The unfinished job, whoever asks; nullptr: there is none.
    ActorPtr find(std::string_view id) const;
    const std::unordered_map<std::string, ActorPtr>& unfinished() const { return unfinished_; }
    Counts counts() const;

    // The job's JSON, as Control has them.
    Result<Text> show_now(const Caller& caller, std::string_view id);
    Task<Result<Text>> show(Caller caller, std::string id);
    // The job whoever asks may see; if it is over, folded from the first so many of its events.
    // With one it is as it was submitted. not_found otherwise.
    Task<Result<std::shared_ptr<const Job>>> load(Caller caller, std::string id,
                                                  std::size_t events_of_ended = SIZE_MAX / 2);
    // The unfinished job that the caller may command; nullptr: it is over. not_found otherwise.
    Task<Result<ActorPtr>> commanded(Caller caller, std::string id);
    // When an attempt ended; see Scheduler::EndOf.
    Task<Result<UnixMillis>> end_of(JobId job, std::int32_t attempt);

  private:
    struct Finished {
        std::string user;
        Text view;
        std::list<std::string>::iterator age;
    };
    void remember(const std::string& id, const std::string& user, Text view);
    void forget(const std::string& id);
    Text with_what_is_left(const std::string& id, Text view) const;

    ControlContext& context_;
    std::unordered_map<std::string, ActorPtr> unfinished_;
    std::unordered_map<std::string, Finished> finished_;  // at most limits::kFinishedJobsCached
    std::list<std::string> ages_;                         // of finished_, newest used first
    Counts counts_;                                       // `states`: final ones only
};

}  // namespace lockstep
