#include "job/cli/follow.hpp"

#include "job/cli/cli_limits.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/live.hpp"
#include "job/cli/story.hpp"
#include "job/cli/views.hpp"

#include <map>
#include <optional>

namespace lockstep::cli {
namespace {

using Steady = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFollowTurn{500};
constexpr std::chrono::seconds kPlainEvery{5};
constexpr std::chrono::seconds kWaitingEvery{60};  // a job in the queue, in a pipe
constexpr std::chrono::seconds kHistoryEvery{1};

constexpr double kJustSubmitted = 10;  // seconds

double seconds_of(Steady::time_point time) {
    return std::chrono::duration<double>(time.time_since_epoch()).count();
}

class Follower {
  public:
    Follower(Context& context, std::string id, bool quiet)
        : context_(context),
          id_(std::move(id)),
          base_("/v1/jobs/" + id_),
          quiet_(quiet),
          block_(context.out, context.terminal) {}

    Exit run() {
        context_.watching(id_);
        last_answer_ = context_.clock.steady();
        while (true) {
            const auto failure = turn();
            if (failure) {
                if (const auto end = lost(*failure)) {
                    return *end;
                }
            } else if (is_final_state(view_.state())) {
                return finish();
            }
            context_.sleep(kFollowTurn);
        }
    }

  private:
    bool live() const { return context_.terminal.interactive && !quiet_; }

    // Asks and shows once. An Error when there was no answer.
    std::optional<Error> turn() {
        auto job = context_.client.get_json(base_);
        if (!job) {
            return job.error();
        }
        const auto now = context_.clock.steady();
        job_ = std::move(*job);
        view_.take_job(job_, seconds_of(now));
        view_.set_lacks_loss(lacks_loss(job_, context_.clock.wall()));
        found();
        tell_events();
        if (view_.state() != shown_state_ || waited_on(now)) {
            say_state(now);
        }
        if (quiet_) {
            return std::nullopt;
        }
        const auto ranks = context_.client.get_json(base_ + "/ranks");
        if (ranks) {
            view_.take_ranks(*ranks);
        } else if (may_pass(ranks.error())) {
            return ranks.error();
        }
        ask_history(now);
        show(now);
        return std::nullopt;
    }

    // What has happened since the last look. What lies before the first one is only told of a job
    // that was just submitted, or if it lasts (a hang, a rank that is waited for): show and events
    // have the rest.
    void tell_events() {
        const bool first = !after_;
        std::map<std::string, Json> lasting;
        std::int64_t after = after_.value_or(0);
        while (true) {
            const auto page = context_.client.get_json(
                base_ + "/events?limit=500&after=" + std::to_string(after));
            if (!page || items_at(*page, "items").empty()) {
                break;  // the next look asks again
            }
            for (const Json& event : items_at(*page, "items")) {
                after = std::max(after, integer_at(event, "seq").value_or(0));
                if (!first || since_submission() < kJustSubmitted) {
                    tell(event);
                } else {
                    note_lasting(event, lasting);
                }
            }
        }
        for (const auto& one : lasting) {
            tell(one.second);
        }
        after_ = after;
    }

    void tell(const Json& event) {
        const auto line = story_line(context_.terminal, event);
        if (!line) {
            return;
        }
        const auto submitted = time_at(job_, "submitted_at");
        const auto time = time_at(event, "time");
        const double seconds =
            submitted && time ? static_cast<double>(*time - *submitted) / 1000 : since_submission();
        say(format_clock(seconds) + "  " + *line);
    }

    // What lasts after this event, by the anomaly's kind.
    static void note_lasting(const Json& event, std::map<std::string, Json>& lasting) {
        const std::string kind = text_at(event, "kind");
        const Json& data = at(event, "data");
        const std::string anomaly = text_at(data, "anomaly");
        if (kind == "anomaly" && (anomaly == "hang" || anomaly == "desync")) {
            const Json& over = at(data, "over");
            if (over.is_boolean() && over.get<bool>()) {
                lasting.erase(anomaly);
            } else {
                lasting[anomaly] = event;
            }
        } else if (kind == "generation_ended" || kind == "attempt_ended" || kind == "finished") {
            lasting.clear();
        }
    }

    // Whether it is time to say again that the job waits, or what it waits for has changed.
    bool waited_on(Steady::time_point now) const {
        return !live() && !text_at(job_, "pending_reason").empty() && shown_waiting_ &&
               (text_at(job_, "pending_reason") != shown_reason_ ||
                now - *shown_waiting_ >= kWaitingEvery);
    }

    void ask_history(Steady::time_point now) {
        if (!view_.step() || (asked_history_ && now - *asked_history_ < kHistoryEvery)) {
            return;
        }
        asked_history_ = now;
        if (!view_.total_steps()) {
            const auto total =
                context_.client.get_json(base_ + "/series?metric=total_steps&ranks=0&points=1");
            const auto lines = total ? plot_lines(*total) : std::vector<PlotLine>{};
            if (!lines.empty() && !lines.front().points.empty()) {
                view_.set_total_steps(static_cast<std::int64_t>(lines.front().points.back().last));
            }
        }
        if (live() && view_.ranks().size() <= FollowView::kListed) {
            const auto series =
                context_.client.get_json(base_ + "/series?metric=loss&points=40&ranks=0-" +
                                         std::to_string(view_.ranks().size() - 1));
            if (series) {
                view_.take_history(*series);
            }
        }
    }

    void show(Steady::time_point now) {
        if (live()) {
            block_.draw(view_.lines(context_.terminal, run_seconds()));
            return;
        }
        const bool due = !shown_plain_ || now - *shown_plain_ >= kPlainEvery;
        if (due && view_.step() && view_.plain() != last_plain_) {
            shown_plain_ = now;
            last_plain_ = view_.plain();
            context_.out << last_plain_ << std::endl;
        }
    }

    // Of a job that has not started: how long it has been waiting.
    double run_seconds() const {
        return running_seconds(job_, context_.clock.wall()).value_or(since_submission());
    }

    double since_submission() const {
        const auto submitted = time_at(job_, "submitted_at");
        return submitted ? static_cast<double>(context_.clock.wall() - *submitted) / 1000 : 0;
    }

    void say(const std::string& text) {
        block_.erase();
        context_.out << text << std::endl;
    }

    void say_state(Steady::time_point now) {
        shown_state_ = view_.state();
        if (is_final_state(shown_state_)) {
            return;  // finish() says it
        }
        const std::string reason = text_at(job_, "pending_reason");
        shown_waiting_ = now;
        shown_reason_ = reason;
        say(format_clock(since_submission()) + "  " +
            paint(context_.terminal, state_style(shown_state_), shown_state_) +
            (reason.empty() ? "" : "  pending: " + reason));
    }

    void found() {
        last_answer_ = context_.clock.steady();
        if (disconnected_) {
            disconnected_ = false;
            view_.set_note("");
            say("connected again");
        }
    }

    // The program's end, or nothing when it should go on asking.
    std::optional<Exit> lost(const Error& error) {
        if (!may_pass(error)) {
            block_.keep();
            return report(context_, error);
        }
        if (!disconnected_) {
            disconnected_ = true;
            say("no answer from " + context_.client.where() +
                "; the job continues without it, retrying");
            if (live()) {
                view_.set_note("waiting for the daemon; this is what it said last");
                block_.draw(view_.lines(context_.terminal, run_seconds()));
            }
        }
        if (context_.clock.steady() - last_answer_ > limits::kFollowPatience) {
            return report(context_, error);
        }
        return std::nullopt;
    }

    Exit finish() {
        if (!quiet_) {
            ask_final();
        }
        if (live()) {
            block_.draw(view_.lines(context_.terminal, run_seconds()));
            block_.keep();
        } else if (!quiet_ && view_.step() && view_.plain() != last_plain_) {
            context_.out << view_.plain() << "\n";
        }
        const std::string& state = view_.state();
        const auto step = integer_at(job_, "step");
        context_.out << paint(context_.terminal, state_style(state), state) << " after "
                     << format_clock(run_seconds())
                     << (step && *step >= 0 ? ", " + std::to_string(*step) + " steps" : "") << "  "
                     << id_ << std::endl;
        // Who waits for a program's end may not care for its loss; a live view has it already.
        if (!quiet_ && !live() && lacks_loss(job_, context_.clock.wall())) {
            context_.err << kLossHint << std::endl;
        }
        if (state == "succeeded") {
            return Exit::ok;
        }
        print(context_, cause_view(context_.terminal, at(job_, "cause")));
        return state == "cancelled" ? Exit::cancelled : Exit::job_failed;
    }

    // What came in between the last look and the end.
    void ask_final() {
        if (const auto ranks = context_.client.get_json(base_ + "/ranks")) {
            view_.take_ranks(*ranks);
        }
        asked_history_.reset();
        ask_history(context_.clock.steady());
    }

    Context& context_;
    std::string id_;
    std::string base_;
    bool quiet_;
    LiveBlock block_;
    FollowView view_;
    Json job_;
    std::string shown_state_;
    std::string shown_reason_;
    std::optional<Steady::time_point> shown_waiting_;
    std::optional<std::int64_t> after_;  // the newest event that was read
    std::string last_plain_;
    std::optional<Steady::time_point> shown_plain_;
    std::optional<Steady::time_point> asked_history_;
    Steady::time_point last_answer_;
    bool disconnected_ = false;
};

}  // namespace

Exit follow_job(Context& context, const std::string& id, bool quiet) {
    Follower follower(context, id, quiet);
    return follower.run();
}

Exit watch_ranks(Context& context, const std::string& id) {
    LiveBlock block(context.out, context.terminal);
    context.watching(id);
    while (true) {
        const auto job = context.client.get_json("/v1/jobs/" + id);
        const auto ranks = job ? context.client.get_json("/v1/jobs/" + id + "/ranks") : job;
        if (!ranks && !may_pass(ranks.error())) {
            block.keep();
            return report(context, ranks.error());
        }
        if (ranks) {
            auto lines = ranks_table(context.terminal, *ranks);
            const std::string state = text_at(*job, "state");
            lines.insert(lines.begin(), text_at(*job, "name") + "  " +
                                            paint(context.terminal, state_style(state), state));
            if (context.terminal.interactive) {
                block.draw(lines);
            } else {
                print(context, lines);
            }
            if (is_final_state(state)) {
                return Exit::ok;
            }
        }
        context.sleep(context.terminal.interactive ? kFollowTurn : kFollowTurn * 4);
    }
}

}  // namespace lockstep::cli
