#include "job/base/text.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kLogsTurn{250};
constexpr std::size_t kLongLine = 64U << 10U;

// Prints one rank's log from where it left off. Text is held back until its line is complete, so
// that lines of several ranks do not mix and no character is cut in two.
class LogPrinter {
  public:
    LogPrinter(Context& context, const std::string& base, std::int32_t rank, bool named)
        : context_(context),
          target_(base + "/logs?rank=" + std::to_string(rank)),
          prefix_(named ? "[" + std::to_string(rank) + "] " : "") {}

    // Everything that is there by now. True when something was new.
    Result<bool> more() {
        bool any = false;
        while (true) {
            std::string target = target_;
            if (offset_) {
                target += "&offset=" + std::to_string(*offset_);
            } else if (context_.options.tail > 0) {
                target += "&tail=" + std::to_string(context_.options.tail);
            } else {
                target += "&offset=0";
            }
            const auto answer = context_.client.get(target);
            if (!answer) {
                return fail(answer.error());
            }
            const auto next = to_int(answer->header("Lockstep-Log-Next"));
            if (next) {
                offset_ = next;
            }
            if (answer->body.empty() || !next) {
                print(answer->body);
                return any || !answer->body.empty();
            }
            any = true;
            print(answer->body);
        }
    }

    void flush() {
        if (!held_.empty()) {
            write(held_ + "\n");
            held_.clear();
        }
        context_.out << std::flush;
    }

  private:
    void print(const std::string& bytes) {
        held_ += bytes;
        std::size_t end = held_.rfind('\n');
        if (end == std::string::npos && held_.size() > kLongLine) {
            end = held_.size() - 1;
        }
        if (end == std::string::npos) {
            return;
        }
        write(std::string_view(held_).substr(0, end + 1));
        held_.erase(0, end + 1);
    }
    // A terminal obeys what it is sent, so foreign text is cleaned; a pipe gets the bytes.
    void write(std::string_view text) {
        const std::string clean =
            context_.terminal.interactive ? harmless(text) : std::string(text);
        if (prefix_.empty()) {
            context_.out << clean;
            return;
        }
        for (std::size_t at = 0; at < clean.size();) {
            const std::size_t end = std::min(clean.find('\n', at), clean.size() - 1);
            context_.out << prefix_ << clean.substr(at, end + 1 - at);
            at = end + 1;
        }
    }

    Context& context_;
    std::string target_;
    std::string prefix_;
    std::string held_;
    std::optional<std::int64_t> offset_;
};

Result<std::vector<std::int32_t>> ranks_asked(const Context& context, const std::string& base) {
    if (context.options.rank != "all") {
        const auto rank = to_int(context.options.rank);
        if (!rank || *rank < 0 || *rank > 1'000'000) {
            return fail(Errc::invalid, "--rank: a number or all");
        }
        return std::vector{static_cast<std::int32_t>(*rank)};
    }
    const auto ranks = context.client.get_json(base + "/ranks");
    if (!ranks) {
        return fail(ranks.error());
    }
    std::vector<std::int32_t> out;
    for (const Json& rank : items_at(*ranks, "items")) {
        if (const auto number = integer_at(rank, "rank")) {
            out.push_back(static_cast<std::int32_t>(*number));
        }
    }
    return out;
}

// Whether the job has ended. Ranks it has by now are added to `printers`.
Result<bool> look(Context& context, const std::string& base,
                  std::map<std::int32_t, LogPrinter>& printers) {
    const auto job = context.client.get_json(base);
    if (!job) {
        return fail(job.error());
    }
    const auto ranks = ranks_asked(context, base);
    if (!ranks) {
        return fail(ranks.error());
    }
    for (const std::int32_t rank : *ranks) {
        printers.try_emplace(rank, context, base, rank, context.options.rank == "all");
    }
    return is_final_state(text_at(*job, "state"));
}

// One round over all ranks. An Error only when it is worth ending for.
Result<bool> round(Context& context, const std::string& base,
                   std::map<std::int32_t, LogPrinter>& printers) {
    const bool follow = context.options.log_follow;
    auto ended = look(context, base, printers);
    if (!ended) {
        return ended;
    }
    for (auto& [rank, printer] : printers) {
        const auto more = printer.more();
        // A rank that has not started has no log yet.
        const bool later =
            !more && (may_pass(more.error()) || more.error().code == Errc::not_found);
        if (!more && !(follow && !*ended && later)) {
            return fail(more.error());
        }
    }
    context.out << std::flush;
    return ended;
}

}  // namespace

Exit logs(Context& context, const std::string& id) {
    const std::string base = "/v1/jobs/" + id;
    std::map<std::int32_t, LogPrinter> printers;
    if (context.options.log_follow) {
        context.watching(id);
    }
    bool said = false;
    while (true) {
        const auto ended = round(context, base, printers);
        if (!ended && !(context.options.log_follow && may_pass(ended.error()))) {
            return report(context, ended.error());
        }
        if (!ended && !said) {
            context.err << "no answer from " << context.client.where() << "; asking again\n";
        }
        said = !ended;
        if (!context.options.log_follow || (ended && *ended)) {
            for (auto& [rank, printer] : printers) {
                printer.flush();
            }
            return Exit::ok;
        }
        context.sleep(kLogsTurn);
    }
}

}  // namespace lockstep::cli
