// size: what asks, what asks beside the keys, and the loop of one screen
// lockstep top: the ranks of a job, those to look at first, again and again.
#include "job/base/unique_fd.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/screen.hpp"
#include "job/cli/top_view.hpp"
#include "job/cli/views.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace lockstep::cli {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Which of the ranks; limit 0 = all.
struct Ask {
    std::string sort;
    std::size_t offset = 0;
    std::size_t limit = 0;
};

struct Answer {
    std::optional<Error> error;
    Json job;
    Json ranks;
    std::vector<Json> anomalies;  // events that are new
    Ask asked;
};

// Asks for one look at the job. Events are read only when the job counts more anomalies than have
// been seen, or a hang has begun or is over. One thread.
class Source {
  public:
    Source(const Client& client, const std::string& id)
        : client_(client), base_("/v1/jobs/" + id) {}

    Answer look(const Ask& ask, const std::stop_token& stop = {}) {
        Answer answer;
        answer.asked = ask;
        const auto job = get("", stop);
        if (!job) {
            answer.error = job.error();
            return answer;
        }
        const std::string window = ask.limit == 0 ? "" : "&limit=" + std::to_string(ask.limit);
        const auto ranks =
            get("/ranks?" + ask.sort + "&offset=" + std::to_string(ask.offset) + window, stop);
        if (!ranks) {
            answer.error = ranks.error();
            return answer;
        }
        answer.job = *job;
        answer.ranks = *ranks;
        answer.error = new_anomalies(*job, answer.anomalies, stop);
        return answer;
    }

  private:
    Result<Json> get(const std::string& path, const std::stop_token& stop) const {
        ClientRequest request;
        request.target = base_ + path;
        request.deadline = limits::kTopAnswerPatience;
        request.stop = stop;
        return client_.ask_json(std::move(request));
    }

    std::optional<Error> new_anomalies(const Json& job, std::vector<Json>& out,
                                       const std::stop_token& stop) {
        std::int64_t count = 0;
        const Json& kinds = at(job, "anomalies");
        if (kinds.is_object()) {
            for (const auto& [kind, number] : kinds.items()) {
                count += number.is_number_integer() ? number.get<std::int64_t>() : 0;
            }
        }
        const std::pair lasting{at(job, "hang").is_object(), at(job, "desync").is_object()};
        bool more = seen_ < count || lasting != lasting_;
        while (more) {
            const auto page = get("/events?limit=" + std::to_string(limits::kPage) +
                                      "&after=" + std::to_string(after_),
                                  stop);
            if (!page) {
                return page.error();
            }
            const Json& items = items_at(*page, "items");
            for (const Json& event : items) {
                after_ = std::max(after_, integer_at(event, "seq").value_or(0));
                if (text_at(event, "kind") == "anomaly") {
                    out.push_back(event);
                    // A job does not count the end of one.
                    const Json& over = at(at(event, "data"), "over");
                    seen_ += over.is_boolean() && over.get<bool>() ? 0 : 1;
                }
            }
            more = !text_at(*page, "next_cursor").empty() && !items.empty();
        }
        lasting_ = lasting;
        return std::nullopt;
    }

    const Client& client_;
    std::string base_;
    std::int64_t after_ = 0;
    std::int64_t seen_ = 0;
    std::pair<bool, bool> lasting_{};  // a hang, a rank that is waited for, at the last look
};

// Asks on a thread of its own, so that keys work while a daemon does not answer. Ending it ends a
// request that is under way.
class Asker {
  public:
    explicit Asker(Source& source)
        : source_(source),
          wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
          thread_([this](const std::stop_token& stop) { work(stop); }) {}

    int wake() const { return wake_.get(); }
    // The newest wish counts.
    void ask(Ask wish) {
        const std::lock_guard lock(mutex_);
        wish_ = std::move(wish);
        changed_.notify_one();
    }
    bool busy() {
        const std::lock_guard lock(mutex_);
        return busy_ || wish_;
    }
    std::optional<Answer> take() {
        std::uint64_t count = 0;
        if (::read(wake_.get(), &count, sizeof count) < 0) {
            return std::nullopt;  // nothing has come
        }
        const std::lock_guard lock(mutex_);
        return std::exchange(answer_, std::nullopt);
    }

  private:
    void work(const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (changed_.wait(lock, stop, [this] { return wish_.has_value(); })) {
            const Ask ask = std::exchange(wish_, std::nullopt).value_or(Ask{});
            busy_ = true;
            lock.unlock();
            Answer answer = source_.look(ask, stop);
            lock.lock();
            busy_ = false;
            if (answer_) {  // the previous one was not fetched: its news must not be lost
                answer.anomalies.insert(answer.anomalies.begin(), answer_->anomalies.begin(),
                                        answer_->anomalies.end());
            }
            answer_ = std::move(answer);
            const std::uint64_t one = 1;
            if (::write(wake_.get(), &one, sizeof one) < 0) {
                return;  // cannot be: the counter is far from full
            }
        }
    }

    Source& source_;
    UniqueFd wake_;
    std::mutex mutex_;  // guards the four below
    std::condition_variable_any changed_;
    std::optional<Ask> wish_;
    std::optional<Answer> answer_;
    bool busy_ = false;
    std::jthread thread_;  // last: ends before what it uses
};

class Top {
  public:
    Top(Context& context, const std::string& id)
        : context_(context), source_(context.client, id), terminal_(context.terminal) {}

    Exit run() {
        const Options& options = context_.options;
        const auto sort = parse_top_sort(options.sort);  // the option takes only its words
        choice_.sort = sort.value_or(TopSort::busy);
        usual_ = !sort;
        choice_.reversed = options.reverse;
        const bool live = terminal_.interactive && !options.once && !options.json;
        Ask first = window();
        first.limit = live ? first.limit : 0;
        Answer answer = source_.look(first);
        if (answer.error) {
            return report(context_, *answer.error);
        }
        if (options.json) {
            Json out = Json::object();
            out["job"] = std::move(answer.job);
            out["ranks"] = std::move(answer.ranks);
            out["anomalies"] = std::move(answer.anomalies);
            print_json(context_, out);
            return Exit::ok;
        }
        if (take(answer)) {
            first.sort = sort_query(choice_);
            answer = source_.look(first);
            if (answer.error) {
                return report(context_, *answer.error);
            }
            take(answer);
        }
        if (!live) {
            print(context_, view_.table(terminal_));
            return Exit::ok;
        }
        const std::optional<Exit> end = is_final_state(view_.state()) ? Exit::ok : watch();
        if (end && *end != Exit::ok) {
            return failure_ ? report(context_, *failure_) : *end;
        }
        if (is_final_state(view_.state())) {
            print_last();
        }
        return Exit::ok;
    }

  private:
    // What the next look asks for: a screen more on both sides, so that scrolling need not wait.
    Ask window() const {
        Ask ask;
        ask.sort = sort_query(choice_);
        ask.offset = choice_.first > terminal_.height ? choice_.first - terminal_.height : 0;
        ask.limit = 3 * std::max<std::size_t>(terminal_.height, 1);
        return ask;
    }

    // Whether the ranks have to be asked for in another order.
    bool take(const Answer& answer) {
        answered_ = context_.clock.steady();
        view_.take_job(answer.job, context_.clock.wall());
        view_.take_ranks(answer.ranks, answer.asked.offset);
        for (const Json& event : answer.anomalies) {
            view_.take_event(event);
        }
        const TopSort before = choice_.sort;
        // Ranks without a value are last in either order, so the first ones speak for all.
        if (usual_ && answer.asked.offset == 0) {
            choice_.sort = view_.usual_sort();
        }
        return choice_.sort != before;
    }

    // Until the job is over or somebody has seen enough. The terminal is given back at the return.
    std::optional<Exit> watch() {
        auto screen = Screen::enter();
        if (!screen) {
            failure_ = screen.error();
            return Exit::unreachable;
        }
        Asker asker(source_);
        const milliseconds interval{
            static_cast<std::int64_t>(context_.options.interval_seconds * 1000)};
        auto due = context_.clock.steady() + interval;
        while (true) {
            const auto now = context_.clock.steady();
            choice_.age = std::chrono::duration<double>(now - answered_).count();
            (*screen)->draw(terminal_, view_.frame(terminal_, choice_));
            if (now >= due && !choice_.paused && !asker.busy()) {
                asker.ask(window());
                due = now + interval;
            }
            // Once a second in any case: the age of the data grows.
            const auto left = std::chrono::duration_cast<milliseconds>(due - now);
            const bool waits = choice_.paused || asker.busy();
            const Screen::News news = (*screen)->wait(
                waits ? milliseconds{1000} : std::clamp(left, milliseconds{0}, milliseconds{1000}),
                asker.wake());
            if (news.closed) {
                return Exit::interrupted;
            }
            if (news.resized) {
                terminal_ = Terminal::detect();
                asker.ask(window());
            }
            for (const Key key : news.keys) {
                if (key == Key::quit) {
                    return Exit::ok;
                }
                if (pressed(key, **screen)) {
                    asker.ask(window());
                }
            }
            if (auto answer = asker.take()) {
                const TopSort before = choice_.sort;
                if (const auto end = answered(*answer)) {
                    return end;
                }
                if (choice_.sort != before) {
                    asker.ask(window());
                }
            }
        }
    }

    std::optional<Exit> answered(const Answer& answer) {
        for (const Json& event : answer.anomalies) {
            if (answer.error) {
                view_.take_event(event);  // told once: they are not in the next answer
            }
        }
        if (answer.error) {
            if (!may_pass(*answer.error) ||
                context_.clock.steady() - answered_ > limits::kFollowPatience) {
                failure_ = answer.error;
                return exit_code(answer.error->code);
            }
            choice_.note = "no answer from " + context_.client.where() +
                           "; the job continues without it, retrying";
            return std::nullopt;
        }
        choice_.note.clear();
        take(answer);
        choice_.first = view_.clamp(choice_.first, terminal_, choice_);
        return is_final_state(view_.state()) ? std::optional{Exit::ok} : std::nullopt;
    }

    // Whether other ranks have to be asked for.
    bool pressed(Key key, Screen& screen) {
        if (choice_.help) {
            choice_.help = false;
            return false;
        }
        const std::size_t page = view_.page(terminal_, choice_);
        const std::size_t before = choice_.first;
        switch (key) {
            case Key::sort:
                usual_ = false;
                choice_.sort = static_cast<TopSort>((static_cast<std::size_t>(choice_.sort) + 1) %
                                                    kTopSorts.size());
                choice_.first = 0;
                return true;
            case Key::reverse:
                choice_.reversed = !choice_.reversed;
                choice_.first = 0;
                return true;
            case Key::pause:
                choice_.paused = !choice_.paused;
                return !choice_.paused;
            case Key::help:
                choice_.help = true;
                return false;
            case Key::up:
                choice_.first -= choice_.first > 0 ? 1 : 0;
                break;
            case Key::down:
                ++choice_.first;
                break;
            case Key::page_up:
                choice_.first -= std::min(choice_.first, page);
                break;
            case Key::page_down:
                choice_.first += page;
                break;
            case Key::home:
                choice_.first = 0;
                break;
            case Key::end:
                choice_.first = view_.ranks();
                break;
            case Key::redraw:
                screen.forget();
                return false;
            case Key::quit:
            case Key::other:
                return false;
        }
        choice_.first = view_.clamp(choice_.first, terminal_, choice_);
        return choice_.first != before;
    }

    // What the screen showed at the end stays in front of the prompt.
    void print_last() {
        Terminal terminal = terminal_;
        choice_.help = false;
        choice_.paused = false;
        choice_.age = 0;
        choice_.note.clear();
        terminal.height =
            std::min<std::size_t>(terminal.height > 1 ? terminal.height - 1 : 1, view_.ranks() + 8);
        std::vector<std::string> lines = view_.frame(terminal, choice_);
        lines.pop_back();  // the keys
        while (!lines.empty() && lines.back().empty()) {
            lines.pop_back();
        }
        print(context_, lines);
    }

    Context& context_;
    Source source_;
    Terminal terminal_;
    TopChoice choice_;
    bool usual_ = true;  // nobody has said by what to sort
    TopView view_;
    Steady::time_point answered_;
    std::optional<Error> failure_;
};

}  // namespace

Exit top(Context& context, const std::string& id) {
    Top program(context, id);
    return program.run();
}

}  // namespace lockstep::cli
