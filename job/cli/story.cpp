#include "job/cli/story.hpp"

#include "job/cli/fields.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::cli {
namespace {

constexpr std::array<std::string_view, 13> kOrdinary{
    "submitted",     "attempt_created", "attempt_submitting", "attempt_submitted", "attempt_placed",
    "agent_claimed", "ranks_released",  "ranks_started",      "checkpoint_saved",  "held",
    "released",      "finished",        "cancel_requested"};

std::string number_text(const Json& object, std::string_view key) {
    return std::to_string(integer_at(object, key).value_or(0));
}

std::string place(const Json& event) {
    std::string out;
    if (const auto rank = integer_at(event, "rank"); rank && *rank >= 0) {
        out = " rank " + std::to_string(*rank);
    }
    const std::string node = text_at(event, "node");
    return node.empty() ? out : out + " on " + node;
}

std::optional<std::string> started(const Terminal& terminal, const Json& event) {
    const Json& data = at(event, "data");
    const std::string message = text_at(data, "message");  // "goes on with 3 of 4 nodes: …"
    if (integer_at(event, "generation").value_or(1) <= 1 && message.empty()) {
        return std::nullopt;
    }
    const auto step = integer_at(data, "resumed_from_step");
    return paint(terminal, Style::bold,
                 "generation " + number_text(event, "generation") + " starts" +
                     (step && *step >= 0 ? " from step " + std::to_string(*step) : "")) +
           (message.empty() ? "" : "  " + paint(terminal, Style::yellow, message));
}

std::optional<std::string> ended(const Terminal& terminal, const Json& event, const char* what) {
    const Json& why = at(at(event, "data"), "cause");
    const std::string cause = cause_text(why);
    if (cause.empty() || text_at(why, "class") == "restart_requested") {
        return std::nullopt;  // nothing failed, and the request has been told with who asked
    }
    return paint(terminal, Style::yellow,
                 std::string(what) + " " + number_text(event, what) + " ended") +
           "  " + cause;
}

std::optional<std::string> exited(const Terminal& terminal, const Json& event) {
    const Json& data = at(event, "data");
    const bool stopped = at(data, "stopped").is_boolean() && at(data, "stopped").get<bool>();
    const auto signal = integer_at(data, "signal").value_or(0);
    const auto code = integer_at(data, "exit_code").value_or(0);
    if (stopped || (signal <= 0 && code <= 0)) {
        return std::nullopt;
    }
    return paint(
        terminal, Style::red,
        place(event).substr(1) + (signal > 0 ? " was ended by signal " + std::to_string(signal)
                                             : " exited with code " + std::to_string(code)));
}

}  // namespace

std::optional<std::string> story_line(const Terminal& terminal, const Json& event) {
    const std::string kind = text_at(event, "kind");
    const Json& data = at(event, "data");
    if (std::find(kOrdinary.begin(), kOrdinary.end(), kind) != kOrdinary.end()) {
        return std::nullopt;
    }
    if (kind == "generation_started") {
        return started(terminal, event);
    }
    if (kind == "generation_ended") {
        return ended(terminal, event, "generation");
    }
    if (kind == "attempt_ended") {
        return ended(terminal, event, "attempt");
    }
    if (kind == "node_returned") {
        return text_at(event, "node") + " is back";
    }
    if (kind == "restart_requested" && !text_at(data, "reason").empty()) {
        return std::nullopt;  // the generation's end says the same
    }
    if (kind == "rank_exited" && !place(event).empty()) {
        return exited(terminal, event);
    }
    if (kind == "preflight") {
        const std::string severity = text_at(data, "severity");
        if (severity != "fail" && severity != "warn") {
            return std::nullopt;  // passed
        }
        return paint(terminal, severity == "fail" ? Style::red : Style::yellow,
                     "pre-flight" + place(event)) +
               "  " + text_at(data, "check") + ": " + text_at(data, "found") + "; expected " +
               text_at(data, "expected");
    }
    if (kind == "anomaly") {
        return paint(terminal, Style::yellow, text_at(data, "anomaly") + place(event)) +
               (text_at(data, "message").empty() ? "" : "  " + text_at(data, "message"));
    }
    std::string text = kind;
    std::replace(text.begin(), text.end(), '_', ' ');
    text += place(event);
    if (const auto xid = integer_at(data, "xid")) {
        text += " GPU " + number_text(data, "gpu") + " XID " + std::to_string(*xid);
    }
    const std::string by = text_at(data, "by");
    const std::string message = text_at(data, "message");
    const std::string words = message.empty() ? text_at(data, "reason") : message;
    const Style style = kind == "restart_requested" ? Style::bold : Style::yellow;  // no trouble
    return paint(terminal, style, by.empty() ? text : text + " by " + by) +
           (words.empty() ? "" : "  " + words);
}

}  // namespace lockstep::cli
