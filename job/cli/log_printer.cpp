#include "job/cli/log_printer.hpp"

#include "job/base/text.hpp"
#include "job/cli/glyph.hpp"

#include <algorithm>

namespace lockstep::cli {
namespace {

constexpr std::size_t kLongLine = 64U << 10U;

}  // namespace

std::string printed_line(const Terminal& terminal, std::string_view line) {
    if (terminal.interactive) {
        return spelled(terminal, settled(line));
    }
    return is_redrawn(line) ? settled(line) : std::string(line);
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
      target_(base + "/logs?rank=" + std::to_string(rank)),
      rank_(rank),
      unfinished_(context) {}

Result<bool> LogPrinter::more() {
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
        LOCKSTEP_TRY(answer);
        const LogOrigin origin = origin_of(*answer, rank_, origin_);
        const bool other = origin_ && is_other_log(*origin_, origin);
        origin_ = origin;
        if (other) {  // the offset was of the log before
            end_line();
            offset_ = 0;
            continue;
        }
        const auto next = to_int(answer->header("Lockstep-Log-Next"));
        if (next) {
            offset_ = next;
        }
        take(answer->body);
        any = any || !answer->body.empty();
        if (answer->body.empty() || !next) {
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
