#include "job/model/notices.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/limits/model_limits.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace lockstep {
namespace {

constexpr std::size_t kMailLineBytes = 900;  // RFC 5322 §2.1.1: 998

// At most `most` bytes, no character cut in two.
std::string_view first_bytes(std::string_view text, std::size_t most) {
    if (text.size() <= most) {
        return text;
    }
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == 0x80U) {
        --most;
    }
    return text.substr(0, most);
}

std::string on_one_line(std::string_view text) {
    std::string out = printable(text);
    std::replace_if(out.begin(), out.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
    return std::string{trim(first_bytes(out, limits::kNoticeTextBytes))};
}

std::string job_title(const Job& job) {
    return job.spec.name + " (" + job.id.value + ")";
}

std::string with_reason(std::string what, std::string_view reason) {
    const std::string line = on_one_line(reason);
    return line.empty() ? what : what + ": " + line;
}

// The job as it was, in the words of GET /v1/jobs/{id}.
Json job_part(const Job& job, const Cause& cause, std::int64_t step) {
    Json out = Json::object();
    out["id"] = job.id.value;
    out["name"] = job.spec.name;
    out["user"] = job.user;
    out["framework"] = to_string(job.spec.framework);
    out["state"] = to_string(job.state);
    if (!job.spec.labels.empty()) {
        out["labels"] = job.spec.labels;
    }
    out["submitted_at"] = to_rfc3339(job.submitted_at);
    if (job.started_at != 0) {
        out["started_at"] = to_rfc3339(job.started_at);
    }
    if (job.finished_at != 0) {
        out["finished_at"] = to_rfc3339(job.finished_at);
    }
    if (step >= 0) {
        out["step"] = step;
    }
    if (job.attempt() != nullptr) {
        out["attempt"] = job.attempt()->number;
    }
    if (job.generation() != nullptr) {
        out["generation"] = job.generation()->number;
    }
    if (cause.kind != CauseClass::none) {
        out["cause"] = to_json(cause);
    }
    return out;
}

Notice make_notice(const Job& job, const Event& event, std::string_view word,
                   const std::string& text, const Cause& cause, std::int64_t step) {
    Notice out;
    out.seq = event.seq;
    out.body = Json::object();
    out.body["event"] = word;
    out.body["time"] = to_rfc3339(event.time);
    out.body["seq"] = event.seq;
    out.body["text"] = text;
    out.body["job"] = job_part(job, cause, step);
    return out;
}

Notice end_notice(const Job& job, const Event& event, const event::Finished& end) {
    const std::string_view word = to_string(end.state);
    const std::string what =
        job_title(job) + (end.state == JobState::cancelled ? " was " : " has ") + std::string{word};
    const std::string text =
        end.state == JobState::succeeded ? what : with_reason(what, end.cause.message);
    return make_notice(job, event, word, text, end.cause, end.step);
}

Notice restart_notice(const Job& job, const Event& event, const Cause& cause, std::int64_t step) {
    const std::string text =
        with_reason(job_title(job) + " was interrupted and is being started again", cause.message);
    return make_notice(job, event, "restarting", text, cause, step);
}

Notice trouble_notice(const Job& job, const Event& event, const event::AnomalySeen& seen,
                      bool hang) {
    const std::string what = job_title(job) + (hang ? " hangs" : " shows " + seen.anomaly);
    Notice out = make_notice(job, event, hang ? "hang" : "anomaly", with_reason(what, seen.message),
                             Cause{}, seen.step);
    Json anomaly = Json::object();
    anomaly["kind"] = seen.anomaly;
    anomaly["message"] = seen.message;
    if (seen.rank >= 0) {
        anomaly["rank"] = seen.rank;
    }
    if (!seen.node.empty()) {
        anomaly["node"] = seen.node;
    }
    if (seen.step >= 0) {
        anomaly["step"] = seen.step;
    }
    out.body["anomaly"] = std::move(anomaly);
    return out;
}

// Not what somebody asked for, and not a node that is back.
bool is_interruption(CauseClass kind) {
    return kind != CauseClass::restart_requested && kind != CauseClass::node_returned;
}

// How many notices but its end a job has caused so far, by what it has been through: the same
// before and after a restart of the daemon.
std::int64_t told_so_far(const Job& job) {
    const auto restarted = [](const Cause& cause) { return is_interruption(cause.kind); };
    std::int64_t out = 0;
    for (std::size_t kind = 0; kind < kAnomalyKinds; ++kind) {
        const bool each = kind == static_cast<std::size_t>(AnomalyKind::hang);
        out += each ? job.anomalies[kind] : std::min<std::int64_t>(job.anomalies[kind], 1);
    }
    for (const Attempt& attempt : job.attempts) {
        const bool never_ran = attempt.generations.empty() && attempt.finished_at != 0;
        out += never_ran && restarted(attempt.cause) ? 1 : 0;
        out += std::count_if(
            attempt.generations.begin(), attempt.generations.end(),
            [&](const Generation& one) { return !one.open() && restarted(one.cause); });
    }
    return out;
}

// Anomalies of each kind that begin among these events.
std::array<std::int64_t, kAnomalyKinds> begun_in(const std::vector<Event>& events) {
    std::array<std::int64_t, kAnomalyKinds> out{};
    for (const Event& event : events) {
        const auto* seen = std::get_if<event::AnomalySeen>(&event.data);
        const auto kind = seen == nullptr ? std::nullopt : parse_anomaly_kind(seen->anomaly);
        if (kind && !seen->over) {
            ++out[static_cast<std::size_t>(*kind)];
        }
    }
    return out;
}

// Reads one append from its first event on.
class NoticeReader {
  public:
    NoticeReader(const Job& job, const std::vector<Event>& events)
        : job_(job), seen_(job.anomalies) {
        const auto begun = begun_in(events);
        for (std::size_t kind = 0; kind < kAnomalyKinds; ++kind) {
            seen_[kind] -= begun[kind];
        }
        ends_ = std::any_of(events.begin(), events.end(), [](const Event& event) {
            return std::holds_alternative<event::Finished>(event.data);
        });
    }

    std::optional<Notice> read(const Event& event) {
        if (const auto* end = std::get_if<event::Finished>(&event.data)) {
            return end_notice(job_, event, *end);
        }
        if (const auto* seen = std::get_if<event::AnomalySeen>(&event.data)) {
            return trouble(event, *seen);
        }
        // What somebody asked for is no news to them, and an end is told once.
        if (ends_ || job_.cancel_requested_at != 0) {
            return std::nullopt;
        }
        if (const auto* ended = std::get_if<event::GenerationEnded>(&event.data)) {
            interrupted_ = true;
            return restart(event, ended->cause, ended->step);
        }
        if (const auto* ended = std::get_if<event::AttemptEnded>(&event.data);
            ended != nullptr && !interrupted_ && no_generation_told(*ended, event.time)) {
            return restart(event, ended->cause, -1);
        }
        return std::nullopt;
    }

  private:
    std::optional<Notice> trouble(const Event& event, const event::AnomalySeen& seen) {
        const auto kind = parse_anomaly_kind(seen.anomaly);
        if (!kind || seen.over) {
            return std::nullopt;
        }
        const bool hang = *kind == AnomalyKind::hang;
        const bool first = seen_[static_cast<std::size_t>(*kind)]++ == 0;
        // Stragglers and spikes come again and again: the first is news. With the end in the same
        // append, that is what counts.
        if (ends_ || (!hang && !first)) {
            return std::nullopt;
        }
        return trouble_notice(job_, event, seen, hang);
    }
    std::optional<Notice> restart(const Event& event, const Cause& cause, std::int64_t step) const {
        if (!is_interruption(cause.kind)) {
            return std::nullopt;
        }
        return restart_notice(job_, event, cause, step);
    }
    // Its last generation may have ended before, and that was told.
    bool no_generation_told(const event::AttemptEnded& ended, UnixMillis time) const {
        for (const Attempt& attempt : job_.attempts) {
            if (attempt.number == ended.attempt) {
                return attempt.generations.empty() ||
                       attempt.generations.back().finished_at == time;
            }
        }
        return false;
    }

    const Job& job_;
    std::array<std::int64_t, kAnomalyKinds> seen_;  // before the event that is read
    bool ends_ = false;
    bool interrupted_ = false;
};

void mark_last(Notice& notice) {
    notice.body["last"] = true;
    notice.body["text"] =
        notice.body["text"].get<std::string>() + " (the last notice of this job but its end)";
}

}  // namespace

std::vector<Notice> notices_of(const Job& job, const std::vector<Event>& events) {
    std::vector<Notice> out;
    std::optional<Notice> end;
    NoticeReader reader{job, events};
    for (const Event& event : events) {
        auto notice = reader.read(event);
        if (notice && std::holds_alternative<event::Finished>(event.data)) {
            end = std::move(*notice);
        } else if (notice) {
            out.push_back(std::move(*notice));
        }
    }
    if (!out.empty()) {
        const std::int64_t before = told_so_far(job) - static_cast<std::int64_t>(out.size());
        const auto room =
            static_cast<std::size_t>(std::max<std::int64_t>(limits::kNoticesOfJob - before, 0));
        if (out.size() >= room) {
            out.resize(room);
            if (!out.empty()) {
                mark_last(out.back());
            }
        }
    }
    if (end) {
        out.push_back(std::move(*end));
    }
    return out;
}

namespace {

std::string text_in(const Json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end()) {
        return "";
    }
    return found->is_string() ? found->get<std::string>() : dump_json(*found);
}

void add_line(std::string& out, std::string_view title, const std::string& value) {
    if (!value.empty()) {
        std::string line{title};
        line.resize(10, ' ');
        out += line + value + "\n";
    }
}

// Lines that are too long for a mail go on in the next one.
std::string mail_lines(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        const std::string_view line = first_bytes(text.substr(0, end), kMailLineBytes);
        out += line;
        out += '\n';
        text.remove_prefix(line.size());
        if (line.size() == end && !text.empty()) {
            text.remove_prefix(1);
        }
    }
    return out;
}

std::string phrase_of(const std::string& event) {
    if (event == "cancelled") {
        return "was cancelled";
    }
    if (event == "restarting") {
        return "was interrupted and goes on";
    }
    if (event == "hang") {
        return "hangs";
    }
    return event == "anomaly" ? "is in trouble" : "has " + event;
}

// The exception, or the last lines, of the rank that is to blame.
std::string last_words(const Json& cause) {
    const Json exception = cause.is_object() ? cause.value("exception", Json::object()) : Json();
    const std::string traceback = text_in(exception, "traceback");
    return traceback.empty() ? text_in(cause, "log_tail") : traceback;
}

}  // namespace

Mail mail_of(const Json& body, std::string_view url) {
    const Json job = body.value("job", Json::object());
    const Json cause = job.value("cause", Json::object());
    const Json anomaly = body.value("anomaly", Json::object());
    const Json& blamed = anomaly.empty() ? cause : anomaly;
    Mail out;
    out.subject = "[lockstep] " + text_in(job, "name") + " " + phrase_of(text_in(body, "event"));
    std::string text = text_in(body, "text") + "\n\n";
    add_line(text, "Job", text_in(job, "id"));
    add_line(text, "User", text_in(job, "user"));
    add_line(text, "State", text_in(job, "state"));
    add_line(text, "Cause", text_in(cause, "class"));
    add_line(text, "Anomaly", text_in(anomaly, "kind"));
    add_line(text, "Rank", text_in(blamed, "rank"));
    add_line(text, "Node", text_in(blamed, "node"));
    add_line(text, "Step", text_in(job, "step"));
    add_line(text, "Submitted", text_in(job, "submitted_at"));
    add_line(text, "Started", text_in(job, "started_at"));
    add_line(text, "Finished", text_in(job, "finished_at"));
    text += "\n";
    if (!url.empty()) {
        text += std::string{url} + "\n";
    }
    text += "lockstep show " + text_in(job, "id") + "\n";
    if (const std::string words = last_words(cause); !words.empty()) {
        text += "\nLast lines of its output:\n\n" + words + "\n";
    }
    out.text = mail_lines(printable(text));
    return out;
}

}  // namespace lockstep
