#include "job/base/text.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/log_printer.hpp"
#include "job/cli/log_stream.hpp"
#include "job/cli/times.hpp"
#include "job/cli/views.hpp"
#include "job/model/spec/text_pattern.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kLogsTurn{250};

// Lines with times, of any number of ranks: those that were asked for, in the order of time.
class LogMerger {
  public:
    LogMerger(Context& context, const std::string& base, std::optional<TextPattern> wanted,
              std::optional<UnixMillis> since)
        : context_(context),
          base_(base),
          wanted_(std::move(wanted)),
          since_(since),
          unfinished_(context) {}

    void add(std::int32_t rank) {
        streams_.try_emplace(rank, context_.client, log_target(context_.options, base_, rank, true),
                             rank, context_.options.tail);
    }

    // Everything that is there by now, merged. An Error of one rank, as that its log is not there
    // yet, comes after the other ranks' lines.
    Result<void> more() {
        std::set<std::int32_t> open;
        missing_ = Result<void>{};
        for (auto one = streams_.begin(); one != streams_.end(); ++one) {
            open.insert(one->first);
            LOCKSTEP_TRY(fill(one, open));
        }
        for (auto first = earliest(); first != streams_.end(); first = earliest()) {
            print(first->second.take());
            LOCKSTEP_TRY(fill(first, open));
        }
        show_unfinished();
        context_.out << std::flush;
        return missing_;
    }

    void hide() { unfinished_.hide(); }

    void flush() {
        for (auto& [rank, stream] : streams_) {
            stream.finish();
        }
        for (auto first = earliest(); first != streams_.end(); first = earliest()) {
            print(first->second.take());
        }
        unfinished_.hide();
        context_.out << std::flush;
    }

  private:
    using Streams = std::map<std::int32_t, LogStream>;

    // Until a line is at hand or nothing more is there. An Error only when it is everybody's.
    Result<void> fill(Streams::iterator one, std::set<std::int32_t>& open) {
        const std::int32_t rank = one->first;
        LogStream& stream = one->second;
        while (stream.empty() && open.count(rank) > 0) {
            const std::int32_t owner = stream.rank();
            const auto offset = stream.offset();
            const auto fetched = stream.fetch([this, rank](std::int32_t whose) {
                return givers_.try_emplace(whose, rank).first->second != rank;
            });
            if (!fetched && may_pass(fetched.error()) && fetched.error().retry_after_s == 0) {
                return fail(fetched.error());
            }
            if (!fetched && missing_) {
                missing_ = fail(fetched.error());
            }
            if (!fetched || !*fetched) {
                open.erase(rank);
            }
            const auto given = givers_.find(owner);
            if (stream.rank() != owner && given != givers_.end() && given->second == rank) {
                leave(owner, offset);
            }
        }
        return {};
    }

    // The rank that has given this log has one of its own now: another that shares it goes on.
    void leave(std::int32_t owner, std::optional<std::int64_t> offset) {
        givers_.erase(owner);
        for (auto& [rank, stream] : streams_) {
            if (stream.rank() == owner) {
                stream.go_on_at(offset);
            }
        }
    }

    // The stream whose next line is the oldest; of equal ones the lowest rank's. None: the end.
    Streams::iterator earliest() {
        auto first = streams_.end();
        for (auto one = streams_.begin(); one != streams_.end(); ++one) {
            if (!one->second.empty() && (first == streams_.end() ||
                                         one->second.front().order < first->second.front().order)) {
                first = one;
            }
        }
        return first;
    }

    void show_unfinished() {
        if (!context_.options.log_follow || context_.options.json || wanted_ || since_) {
            return;
        }
        std::vector<std::string> lines;
        for (const auto& [rank, stream] : streams_) {
            if (const std::string text = stream.unfinished(); !text.empty()) {
                lines.push_back(streams_.size() > 1 ? of_rank(stream.rank()) + settled(text)
                                                    : text);
            }
        }
        unfinished_.show(lines);
    }

    static std::string of_rank(std::int32_t rank) { return "[" + std::to_string(rank) + "] "; }

    void print(const LogLine& line) {
        const std::string shown = is_redrawn(line.text) ? settled(line.text) : line.text;
        if ((since_ && (!line.time || *line.time < *since_)) ||
            (wanted_ && !wanted_->is_in(shown))) {
            return;
        }
        unfinished_.hide();
        if (line.attempt > attempt_) {
            if (attempt_ > 0) {
                say_attempt(context_, line.attempt);
            }
            attempt_ = line.attempt;
            generation_ = 0;  // they are counted anew
        }
        if (context_.options.json) {
            context_.out << json_line(line, shown) << "\n";
            return;
        }
        mark(line);
        std::string text;
        if (context_.options.timestamps) {
            const bool person = context_.terminal.interactive;
            text += (!line.time ? std::string("-")
                     : person ? paint(context_.terminal, Style::dim, local_clock_millis(*line.time))
                              : to_rfc3339(*line.time)) +
                    " ";
        }
        if (streams_.size() > 1) {
            text += of_rank(line.rank);
        }
        context_.out << text << printed_line(context_.terminal, shown) << "\n";
    }

    // A line of its own where the ranks were started anew.
    void mark(const LogLine& line) {
        if (line.attempt < attempt_) {
            return;
        }
        if (line.generation > generation_ && generation_ > 0) {
            context_.out << paint(context_.terminal, Style::bold,
                                  "--- generation " + std::to_string(line.generation) + " ---")
                         << "\n";
        }
        generation_ = std::max(generation_, line.generation);
    }

    Context& context_;
    std::string base_;
    std::optional<TextPattern> wanted_;
    std::optional<UnixMillis> since_;
    Streams streams_;  // by the rank that was asked for
    // By whose output it is: the rank whose stream gives it. Ranks that share their launcher's
    // would each print it.
    std::map<std::int32_t, std::int32_t> givers_;
    Result<void> missing_;
    std::int64_t attempt_ = 0;  // the newest that a line was of, and its newest generation
    std::int32_t generation_ = 0;
    UnfinishedLines unfinished_;
};

// By itself: one that was only stopped because of another has not, unless it is the one to blame
// as in a hang.
bool has_failed(const Json& rank, const Json& job) {
    const std::string state = text_at(rank, "state");
    if (state == "stopped") {
        const auto blamed = integer_at(at(job, "cause"), "rank");
        return blamed && blamed == integer_at(rank, "rank");
    }
    return state == "failed" || integer_at(rank, "signal").value_or(0) > 0 ||
           integer_at(rank, "exit_code").value_or(0) > 0;
}

// How many ranks this attempt has had at most; 0: not known.
std::int64_t largest_world(std::int64_t attempt, const Json& job) {
    std::int64_t most = 0;
    for (const Json& one : items_at(job, "attempts")) {
        if (integer_at(one, "number") == attempt) {
            for (const Json& generation : items_at(one, "generations")) {
                most = std::max(most, integer_at(generation, "world_size").value_or(0));
            }
        }
    }
    return std::clamp<std::int64_t>(most, 0, limits::kRanks);
}

// The ranks that were asked for, as far as they are known by now.
Result<std::vector<std::int32_t>> ranks_asked(const Context& context, const std::string& base,
                                              const Json& job) {
    const Options& options = context.options;
    if (!options.failed && options.rank != "all") {
        auto ranks =
            parse_rank_set(options.rank.empty() ? "0" : options.rank, limits::kMergedLogRanks);
        return ranks ? std::move(ranks) : fail(ranks.error().in("--rank"));
    }
    std::vector<std::int32_t> out;
    if (options.log_attempt > 0) {
        // Not of /ranks, which has those of now: an elastic job may have had more.
        out.resize(static_cast<std::size_t>(largest_world(options.log_attempt, job)));
        std::iota(out.begin(), out.end(), 0);
    }
    if (out.empty()) {
        const auto ranks = context.client.get_json(base + "/ranks");
        LOCKSTEP_TRY(ranks);
        for (const Json& rank : items_at(*ranks, "items")) {
            const auto number = integer_at(rank, "rank");
            if (number && (!options.failed || has_failed(rank, job))) {
                out.push_back(static_cast<std::int32_t>(*number));
            }
        }
    }
    if (out.size() > limits::kMergedLogRanks) {
        return fail(Errc::invalid, "at most " + std::to_string(limits::kMergedLogRanks) +
                                       " ranks at a time, there are " + std::to_string(out.size()) +
                                       ": choose with --rank 0-255");
    }
    return out;
}

// The ranks that the job will ever have; a rank above these has no log that could be waited for.
Result<void> check_ranks(const std::vector<std::int32_t>& ranks, const Json& job) {
    const Json& resources = at(job, "resources");
    const std::int64_t size = integer_at(resources, "nodes").value_or(0) *
                              integer_at(resources, "ranks_per_node").value_or(1);
    for (const std::int32_t rank : ranks) {
        if (size > 0 && rank >= size) {
            return fail(Errc::not_found, "no rank " + std::to_string(rank) + ": the job has 0-" +
                                             std::to_string(size - 1));
        }
    }
    return {};
}

// Whether nothing more comes: of the attempt with this number, or with 0 of the job.
Result<bool> is_over(std::int64_t attempt, const Json& job) {
    const bool over = is_final_state(text_at(job, "state"));
    if (attempt == 0) {
        return over;
    }
    const Json& items = items_at(job, "attempts");
    const auto found = std::find_if(items.begin(), items.end(), [attempt](const Json& one) {
        return integer_at(one, "number") == attempt;
    });
    if (found == items.end()) {
        return fail(Errc::not_found, "no attempt " + std::to_string(attempt) +
                                         ": the job has had " + std::to_string(items.size()));
    }
    return over || !text_at(*found, "finished_at").empty();
}

// One round over all ranks: whether the job, or the attempt that was asked for, has ended. An Error
// only when it is worth ending for.
template <class Take>
Result<bool> logs_round(Context& context, const std::string& base, const Take& take) {
    const auto job = context.client.get_json(base);
    LOCKSTEP_TRY(job);
    const auto over = is_over(context.options.log_attempt, *job);
    LOCKSTEP_TRY(over);
    const bool ended = *over;
    const auto ranks = ranks_asked(context, base, *job);
    LOCKSTEP_TRY(ranks);
    LOCKSTEP_TRY(check_ranks(*ranks, *job));
    const Result<void> more = take(*ranks);
    // A rank that has not started has no log yet.
    const bool later = !more && (may_pass(more.error()) || more.error().code == Errc::not_found);
    if (!more && !(context.options.log_follow && !ended && later)) {
        return fail(more.error());
    }
    return ended;
}

template <class Take, class Printer>
Exit read_logs(Context& context, const std::string& id, const Take& take, Printer& printer) {
    const std::string base = "/v1/jobs/" + id;
    const bool follow = context.options.log_follow;
    if (follow) {
        context.watching(id);
    }
    bool said = false;
    while (true) {
        const auto ended = logs_round(context, base, take);
        if (!ended && !(follow && may_pass(ended.error()))) {
            printer.flush();
            return report(context, ended.error());
        }
        if (!ended && !said) {
            printer.hide();
            context.err << "no answer from " << context.client.where() << "; asking again\n";
        }
        said = !ended;
        if (!follow || (ended && *ended)) {
            printer.flush();
            return Exit::ok;
        }
        context.sleep(kLogsTurn);
    }
}

Exit plain_log(Context& context, const std::string& id, std::int32_t rank) {
    LogPrinter printer(context, "/v1/jobs/" + id, rank);
    return read_logs(
        context, id,
        [&](const std::vector<std::int32_t>&) -> Result<void> {
            const auto more = printer.more();
            context.out << std::flush;
            return more ? Result<void>{} : fail(more.error());
        },
        printer);
}

}  // namespace

Exit logs(Context& context, const std::string& id) {
    const Options& options = context.options;
    std::optional<TextPattern> wanted;
    if (!options.grep.empty()) {
        auto pattern = TextPattern::parse(options.grep);
        if (!pattern) {
            return report(context, pattern.error().in("--grep"));
        }
        wanted = std::move(*pattern);
    }
    std::optional<UnixMillis> since;
    if (!options.since.empty()) {
        const auto moment = parse_moment(options.since, context.clock.wall());
        if (!moment) {
            return report(context, moment.error().in("--since"));
        }
        since = *moment;
    }
    const bool plain = !options.failed && !options.timestamps && !options.json && !wanted && !since;
    if (plain && options.rank != "all") {
        const auto ranks = ranks_asked(context, "", Json());
        if (!ranks) {
            return report(context, ranks.error());
        }
        if (ranks->size() == 1) {
            return plain_log(context, id, ranks->front());
        }
    }
    LogMerger merger(context, "/v1/jobs/" + id, wanted, since);
    bool any = false;
    const Exit end = read_logs(
        context, id,
        [&](const std::vector<std::int32_t>& ranks) {
            for (const std::int32_t rank : ranks) {
                any = true;
                merger.add(rank);
            }
            return merger.more();
        },
        merger);
    if (end == Exit::ok && !any) {
        context.err << (options.failed ? "no rank has failed\n" : "no rank has started yet\n");
    }
    return end;
}

}  // namespace lockstep::cli
