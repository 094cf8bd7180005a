// The Slurm scheduler: hands attempts to Slurm, follows them with one batched query for all of
// them, and finds them again after anything may have gone wrong (slurm_attempt.hpp has the rules).
// Reads of the API never reach Slurm: poll() answers from the last query. Control thread only.
// Call stop() and let it finish before the object goes.
#pragma once

#include "job/async/on_thread.hpp"
#include "job/async/task_group.hpp"
#include "job/base/limits.hpp"
#include "scheduler-integration/scheduler.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/slurm_attempt.hpp"
#include "scheduler-integration/slurm/slurm_backend.hpp"
#include "scheduler-integration/slurm/slurm_doubt.hpp"
#include "scheduler-integration/slurm/slurm_driver.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Counted since the start; for the daemon's metrics.
struct SlurmCounters {
    std::uint64_t polls = 0;
    std::uint64_t polls_failed = 0;
    std::uint64_t submitted = 0;
    std::uint64_t refused = 0;
    std::uint64_t unclear = 0;    // submissions of unknown outcome
    std::uint64_t adopted = 0;    // found by name after an unknown outcome
    std::uint64_t forgotten = 0;  // acknowledged by Slurm, then not there
    std::uint64_t surplus = 0;    // copies of an attempt that were cancelled
    std::uint64_t malformed = 0;  // rows that did not parse
    std::uint64_t attempts = 0;   // followed now
    std::uint64_t sending = 0;    // submissions in flight now
    // Jobs of attempts that have ended and that Slurm still holds, at the last query.
    std::uint64_t leftovers = 0;
    std::uint64_t leftovers_cancelled = 0;
    bool reachable = false;
    double last_poll_seconds = 0;  // how long the last query took
    UnixMillis last_success = 0;   // of a query; 0 = none yet
    // Of what waits now, by Slurm's word for why; at most limits::kWaitReasons and "other".
    std::map<std::string, std::uint64_t> pending_reasons{};
    // That Slurm has not ended, by partition (the same bound) and Slurm's word for the state.
    using PartitionAndState = std::pair<std::string, std::string>;
    std::map<PartitionAndState, std::uint64_t> jobs{};

    // The bounds are of words, not of jobs: what has no place any more counts as "other".
    void count_reason(std::string reason, std::uint64_t how_many);
    void count_jobs(PartitionAndState where, std::uint64_t how_many);
};

class SlurmScheduler final : public SlurmDriver {
  public:
    struct Options {
        std::string agent_path;
        std::string slurm_bin;                       // for the script; "" = system's
        std::chrono::milliseconds poll_min{5'000};   // while something is about to change
        std::chrono::milliseconds poll_max{60'000};  // while everything only runs
        double reads_per_second = 0.5;               // budget of all questions, with a burst of 4
        double submissions_per_second = 20;
        std::size_t submissions_at_once = 4;
        std::chrono::seconds quarantine{0};              // 0 = the credential's lifetime + 60 s
        std::string steady_clock = steady_clock_name();  // of which the next daemon is told times
        // With nothing to follow: a tenth of the time since the last change, up to this.
        std::chrono::milliseconds idle_most{60'000};
        std::chrono::seconds between_empty{5};   // two answers without it, so far apart
        std::chrono::seconds over_patience{60};  // what is left after a job's end is cancelled
        std::chrono::seconds detail_patience{limits::kSlurmDetailPatience};
        std::chrono::seconds unclaimed{180};  // what runs without an agent is cancelled
        // What may have been cancelled by a person and forgotten by Slurm while no lockstepd looked
        // ends; else it is handed in again.
        bool doubt_ends = false;
        bool gpus_as_gres = false;
        std::size_t estimates_at_once = 2;  // each is a process, and work for slurmctld
        // An attempt was started: how long Slurm had let it wait. Once for each allocation.
        std::function<void(const std::string& partition, double seconds)> waited{};
    };
    SlurmScheduler(net::io_context& io, const Clock& clock, std::unique_ptr<SlurmBackend> backend,
                   Options options);
    ~SlurmScheduler() override;

    // Asks Slurm what it is. not_found and invalid end the daemon's start; with unavailable it
    // starts all the same and asks again until Slurm answers.
    Task<Status> begin() override;

    std::string_view name() const override { return backend_->name(); }
    Result<Admission> admit(const JobSpec& spec) const override;
    Task<Handover> submit(AttemptRequest request) override;
    Task<Result<bool>> adopt(AttemptRequest request) override;
    Task<Observation> poll(JobId job, std::int32_t attempt) override;
    bool may_claim(const JobId& job, std::int32_t attempt, const std::string& allocation) override;
    void claimed(const JobId& job, std::int32_t attempt, const std::string& allocation) override;
    void expect_end(const JobId& job, std::int32_t attempt, bool done) override;
    Task<Status> cancel(JobId job, std::int32_t attempt) override;
    void over(const JobId& job, std::int32_t attempt) override;
    std::optional<std::string> leaving(const JobId& job) const override;
    Task<Status> ping() override;
    Cluster cluster() override;
    Result<std::optional<std::string>> script(const AttemptRequest& request) const override;
    Task<Result<std::optional<StartEstimate>>> estimate(AttemptRequest request) override;

    void on_change(Changed changed) override { changed_ = std::move(changed); }
    void know_ends(EndOf end_of) override;
    const SlurmCounters& counters();
    // What is known of this Slurm; nullptr before it has answered once.
    const SlurmFacts* facts() const { return facts_ ? &*facts_ : nullptr; }
    SlurmBackend& backend() { return *backend_; }
    Task<void> stop() override;
    void agents_moved() override;

  private:
    struct Tracked {
        SlurmAttempt attempt;
        bool has_turn = false;           // counted against submissions_at_once
        bool in_line = false;            // in turn_
        bool unwritten = false;          // its batch script could not be written
        std::string key;                 // in tracked_
        std::string told;                // what was last announced
        std::size_t stillborn_told = 0;  // of attempt.stillborn, in the log
        std::int64_t wait_told = 0;      // of which allocation, by options_.waited
        bool asks_file = false;          // take_up_job() has not finished
        bool in_question = false;        // ask_history() or ask_detail() has not finished
        std::optional<SteadyTime> detail_wanted;
        SlurmAttempt::Copy kept;  // by keep_job()
    };
    using TrackedPointer = std::shared_ptr<Tracked>;

    // A job in Slurm with one of our names that is no longer followed.
    struct Leftover {
        std::string name;
        UnixMillis ended_at = 0;  // the attempt; 0: not known, or it goes on
        bool foreign = false;     // no attempt of ours: another lockstepd's of the same user
        std::optional<SteadyTime> cancelled;
    };

    TrackedPointer track(const AttemptRequest& request);
    TrackedPointer find(const JobId& job, std::int32_t attempt) const;
    slurm::BatchSite site(const SlurmSpec& spec) const;
    void check_node(const Resources& resources, const std::vector<std::string>& names,
                    const std::string& where, std::vector<FieldError>& errors) const;
    Task<void> ask_nodes();
    bool take_turn(Tracked& tracked);
    void give_turn_back(Tracked& tracked);
    Task<void> send(TrackedPointer tracked);
    Task<void> keep_doubt(TrackedPointer tracked);
    Task<void> take_up_doubt(TrackedPointer tracked);
    void keep_job(const TrackedPointer& tracked);
    Task<void> write_job(TrackedPointer tracked);
    Task<void> take_up_job(TrackedPointer tracked);
    Task<Status> write_script(const AttemptRequest& request);
    void note_unwritten(Tracked& tracked, const std::string& why);
    Task<void> poll_loop();
    Task<void> query();
    Task<void> look_around();
    bool facts_are_old() const;
    bool nodes_are_wanted() const;
    Task<void> settle(TrackedPointer tracked, SteadyTime asked);
    struct Question {
        TrackedPointer tracked;
        int place = 0;  // in the line; 0: the detail of one that nobody has claimed
        bool history = false;
    };
    std::vector<Question> questions(SteadyTime asked) const;
    void ask_some(SteadyTime asked);
    bool has_accounting() const;
    Task<void> ask_history(TrackedPointer tracked, SteadyTime asked);
    Task<void> settle_history(TrackedPointer tracked, std::vector<SlurmJob> rows, SteadyTime asked);
    void give_up_detail(Tracked& tracked);
    Task<void> ask_detail(TrackedPointer tracked);
    Task<void> abandon(TrackedPointer tracked);
    Task<bool> was_abandoned(const SlurmAttempt& attempt);
    Task<std::string> last_batch_words(const SlurmAttempt& attempt);
    Task<void> end(TrackedPointer tracked, std::int64_t id);
    Task<Status> end_unseen(TrackedPointer tracked);
    void take_answer(const JobTable& table, SteadyTime asked);
    void measure_waits();
    Task<void> audit(const JobTable& table);
    bool leftover_waits() const;
    void free_turns();
    void tell(Tracked& tracked);
    void forget_ended();
    std::chrono::milliseconds next_pause() const;
    SteadyTime next_query();
    void poll_soon();  // after the shortest pause between two queries
    SlurmPatience patience() const;

    net::io_context& io_;
    const Clock& clock_;
    std::unique_ptr<SlurmBackend> backend_;
    Options options_;
    std::optional<SlurmFacts> facts_;
    SteadyTime facts_at_;
    std::vector<ClusterNode> nodes_;  // for cluster(), asked for only while somebody reads it
    UnixMillis nodes_seen_ = 0;       // 0 = not yet
    SteadyTime nodes_at_;
    std::optional<SteadyTime> cluster_asked_;
    Changed changed_;
    EndOf end_of_;
    std::map<std::int64_t, Leftover> leftovers_;     // by Slurm's number
    std::map<std::string, TrackedPointer> tracked_;  // by key_of()
    std::deque<std::string> turn_;                   // keys of those that wait for their turn
    std::size_t turns_taken_ = 0;
    SteadyTime next_send_;
    bool reachable_ = true;
    std::string unreachable_why_;
    int failures_ = 0;  // queries in a row
    double read_tokens_ = 4;
    SteadyTime tokens_at_;
    std::size_t histories_ = 0;  // questions in flight
    std::size_t details_ = 0;
    std::string question_turn_;  // the key of the attempt that was asked about last
    SteadyTime last_query_;
    SteadyTime last_change_;
    SlurmCounters counters_;
    std::size_t estimates_ = 0;  // in flight
    UnixMillis begun_ = 0;       // this daemon's
    bool stopped_ = false;
    bool poll_soon_ = false;
    net::thread_pool files_;  // writes batch scripts
    net::steady_timer poll_timer_;
    TaskGroup tasks_;
};

}  // namespace lockstep
