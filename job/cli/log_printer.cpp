#include "job/cli/log_printer.hpp"

#include "job/base/text.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/glyph.hpp"
#include "job/cli/views.hpp"

#include <algorithm>

namespace lockstep::cli {
namespace {

constexpr std::size_t kLongLine = 64U << 10U;

}  // namespace

std::string log_target(const Options& options, const std::string& base, std::int32_t rank,
                       bool with_times) {
    return base + "/logs?" + (with_times ? "timestamps=true&" : "") +
           "rank=" + std::to_string(rank) +
           (options.log_attempt > 0 ? "&attempt=" + std::to_string(options.log_attempt) : "");
}

void say_attempt(Context& context, std::int64_t attempt) {
    context.out << std::flush;
    context.err << "-- attempt " + std::to_string(attempt) + " begins\n" << std::flush;
}

std::string printed_line(const Terminal& terminal, std::string_view line) {
    if (terminal.interactive) {
        return spelled(terminal, settled(line));
    }
    return is_redrawn(line) ? settled(line) : std::string(line);
}

std::string json_line(const LogLine& line, const std::string& text) {
    Json out = Json::object();
    if (line.time) {
        out["time"] = to_rfc3339(*line.time);
    }
    out["rank"] = line.rank;
    if (line.attempt > 0) {
        out["attempt"] = line.attempt;
    }
    if (line.generation > 0) {
        out["generation"] = line.generation;
    }
    out["text"] = text;
    return harmless_json(dump_json(out));
}

void UnfinishedLines::show(const std::vector<std::string>& lines) {
    if (!context_.terminal.interactive) {
        return;
    }
    std::vector<std::string> shown;
    for (const std::string& line : lines) {
        const std::string text = one_line(settled(whole_characters(line)));
        if (text.find_first_not_of(' ') != std::string::npos) {
            shown.push_back(spelled(context_.terminal, text));
        }
    }
    if (shown.empty()) {
        hide();
    } else if (shown != shown_) {
        block_.draw(shown);
        shown_ = std::move(shown);
    }
}

void UnfinishedLines::hide() {
    block_.erase();
    shown_.clear();
}

LogPrinter::LogPrinter(Context& context, const std::string& base, std::int32_t rank)
    : context_(context),
      cursor_(context.client, log_target(context.options, base, rank), rank, context.options.tail),
      unfinished_(context) {}

Result<bool> LogPrinter::more() {
    bool any = false;
    while (true) {
        const std::int64_t attempt = cursor_.attempt();
        const auto piece = cursor_.next();
        LOCKSTEP_TRY(piece);
        if (piece->other) {
            end_line();
        }
        if (piece->other && cursor_.attempt() > attempt) {
            say_attempt(context_, cursor_.attempt());
        }
        take(piece->text);
        any = any || !piece->text.empty();
        if (!piece->more) {
            break;
        }
    }
    if (context_.options.log_follow && !begun_) {
        unfinished_.show({held_});
    }
    return any;
}

void LogPrinter::end_line() {
    if (!held_.empty() || begun_) {
        print(std::exchange(held_, {}) + "\n");
    }
}

void LogPrinter::flush() {
    end_line();
    unfinished_.hide();
    context_.out << std::flush;
}

void LogPrinter::take(const std::string& bytes) {
    held_ += bytes;
    if (const std::size_t end = held_.rfind('\n'); end != std::string::npos) {
        print(std::string_view(held_).substr(0, end + 1));
        held_.erase(0, end + 1);
    }
    if (held_.size() > kLongLine) {
        held_ = compacted(held_);
    }
    if (held_.size() > kLongLine) {
        const std::size_t whole = whole_characters(held_).size();
        print(std::string_view(held_).substr(0, whole));
        held_.erase(0, whole);
    }
}

void LogPrinter::print(std::string_view lines) {
    unfinished_.hide();
    while (!lines.empty()) {
        const std::size_t end = lines.find('\n');
        begun_ = end == std::string_view::npos;
        context_.out << printed_line(context_.terminal, lines.substr(0, end))
                     << (begun_ ? "" : "\n");
        lines.remove_prefix(begun_ ? lines.size() : end + 1);
    }
}

}  // namespace lockstep::cli
