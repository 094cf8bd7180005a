// Moves telemetry between memory and the store: batches that ingest has logged become chunks of
// history, a job's series come back after a restart, and questions that memory cannot answer
// exactly are answered from the chunks.
// Two threads of its own, so that neither packing nor a long question holds up the control thread
// or a commit: one packs chunks, one reads through a connection of its own. Control thread only.
#pragma once

#include "daemon/control/base/context.hpp"
#include "daemon/control/base/fair_turns.hpp"
#include "daemon/store/history_records.hpp"
#include "daemon/telemetry/series/bands.hpp"
#include "daemon/telemetry/series/heatmap.hpp"
#include "daemon/telemetry/series/history_scan.hpp"
#include "daemon/telemetry/series/sample_scan.hpp"
#include "job/base/limits.hpp"
#include "job/model/job.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Which GPUs of a job a question is about: those that these ranks use, or those with these ids, or
// all; ascending both. Of these the first `most`.
struct GpuChoice {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> ranks;
    std::size_t most = limits::kGpusOfJob;
};
// What a question about GPUs is answered from; on the reading thread.
struct GpuView {
    telemetry::HistorySource& source;
    const telemetry::GpuDirectory& gpus;
    std::vector<std::uint32_t> ids;         // the chosen ones
    std::vector<telemetry::TailRows> tail;  // of these and the metric, what no chunk has
    std::int64_t newest = 0;                // chunk that `tail` goes on after
    std::vector<std::string> metrics;       // that memory knows to have been reported
};
using AnswerGpus = std::function<Result<std::string>(const GpuView&)>;

class HistoryKeeper {
  public:
    explicit HistoryKeeper(ControlContext& context) : context_(context), wake_(context.io) {}

    // From here on what was left in the log by jobs that are over is packed, now and every hour,
    // what could not be stored is tried again, and expire() runs. Until halt().
    void begin();
    // Fills the series of a job that are not in memory. Damaged parts are left out and logged.
    Task<Status> restore(const Job& job);
    // New rows have come: moves them into chunks if it is time.
    void look(const std::string& job);
    // The job is over: all of it into chunks, soon if its series are not in memory.
    void finish(const std::string& job);
    // Removes what is beyond the settings' size and age.
    void expire();

    // Whether chunks hold all telemetry of a job that is over. Then they answer every question, and
    // its series need not be made from them first; and the answer is the same whether the series
    // are in memory or not. Checked before each question: an agent may come back late.
    Task<Result<bool>> packed(const Job& job);
    // Whether memory has every row that a question may be about.
    static bool in_memory(const telemetry::JobSeries& series,
                          const std::vector<std::int32_t>& ranks);
    // Whoever asks one of the questions below waits for a turn first: each holds a copy of the
    // newest rows, and they are answered one after the other. exhausted: too many of `user` wait
    // already.
    Task<Result<FairTurns::Turn>> turn(std::string user) { return turns_.wait(std::move(user)); }
    Task<Result<std::vector<telemetry::RankHistory>>> series(std::string job,
                                                             telemetry::HistoryAsk ask);
    Task<Result<telemetry::BandsAnswer>> bands(std::string job, telemetry::BandsAsk ask);
    Task<Result<std::string>> heatmap(std::string job, telemetry::HeatmapAsk ask);
    // history_reads.cpp: a page of to_json_text(); the names of all metrics with a value,
    // ascending, as a JSON array.
    Task<Result<std::string>> samples(std::string job, telemetry::SampleAsk ask);
    Task<Result<std::string>> metrics(std::string job);
    // A question about GPUs. invalid: there are no such GPUs.
    Task<Result<std::string>> gpus(std::string job, GpuChoice choice, std::string metric,
                                   AnswerGpus answer);
    // Questions under way end soon, with unavailable; nothing new begins by itself.
    void halt();
    // Ends the threads; no call may be in flight.
    void stop();

  private:
    Task<Status> load(JobId id, std::size_t ranks, bool over, std::vector<double> still_at);
    Task<Status> load_batches(JobId id, std::shared_ptr<telemetry::History> history,
                              std::vector<BatchRow> batches);
    telemetry::JobSeries* find_mutable(const std::string& job);
    void note_open(const std::string& job, std::size_t samples);
    void flush_largest();
    void begin_flush(const std::string& job, telemetry::History& history);
    Task<void> flush(std::string job, std::shared_ptr<telemetry::History> history);
    void retry_later(const std::string& job, const telemetry::History& history);
    void attend(std::chrono::steady_clock::duration delay);
    Task<void> tend();
    Task<void> pack_leftovers();
    Task<void> pack_leftover(JobId id);
    Task<void> remove_old();
    Task<void> forget_states();
    template <class T>
    Task<Result<T>> read(std::string job, std::int64_t newest,
                         std::function<Result<T>(telemetry::HistorySource&)> work,
                         telemetry::EntityKind kind = telemetry::EntityKind::rank);

    // Two: one that is read, one whose rows are ready.
    static constexpr std::size_t kQuestions = 2;

    ControlContext& context_;
    FairTurns turns_{context_.io, kQuestions, limits::kQuestionsWaiting};
    net::thread_pool packing_{1};
    net::thread_pool reading_{1};
    std::shared_ptr<Database> reader_;  // the reading thread's; made by the first question
    std::atomic<bool> ending_{false};   // both threads look at it
    bool expiring_ = false;
    std::optional<double> old_;  // what ended before this goes, by its age; found out at old_at_
    std::chrono::steady_clock::time_point old_at_;

    std::map<std::string, std::size_t> open_;  // values in no chunk, of the jobs that have any
    std::size_t open_of_all_ = 0;
    std::map<std::string, BatchPlace> old_batches_;  // how far they are in memory, not in chunks

    net::steady_timer wake_;
    std::chrono::steady_clock::time_point due_ = std::chrono::steady_clock::time_point::max();
    std::chrono::steady_clock::duration retry_ = std::chrono::seconds{1};
    std::set<std::string> failed_;  // jobs whose flush is to be tried again
    bool leftovers_ = false;        // jobs that are over may have telemetry in the log
};

}  // namespace lockstep
