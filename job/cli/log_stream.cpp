#include "job/cli/log_stream.hpp"

#include "job/base/text.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/terminal.hpp"

#include <utility>

namespace lockstep::cli {
namespace {
constexpr std::size_t kLongestHeldLine = 64U << 10U;

struct Stamp {
    std::optional<UnixMillis> time;
    std::int32_t generation = 0;
    std::size_t text = 0;  // where it begins
};

// "2026-11-22T22:30:37.184Z 2 loss 0.3", or the rest of a line that was too long to be held whole.
Stamp stamp_of(std::string_view stamped) {
    const std::size_t first = stamped.find(' ');
    const std::size_t second =
        first == std::string_view::npos ? first : stamped.find(' ', first + 1);
    if (second == std::string_view::npos) {
        return {};
    }
    const std::string time{stamped.substr(0, first)};
    const std::string_view generation = stamped.substr(first + 1, second - first - 1);
    Stamp stamp;
    stamp.time = time_of(time);
    if (stamp.time || time == "-") {
        stamp.generation = static_cast<std::int32_t>(to_int(generation).value_or(0));
        stamp.text = second + 1;
    }
    return stamp;
}

}  // namespace

LogOrigin origin_of(const ClientResponse& answer, std::int32_t asked,
                    const std::optional<LogOrigin>& before) {
    LogOrigin origin;
    const auto rank = to_int(answer.header("Lockstep-Log-Rank"));
    origin.rank = rank ? static_cast<std::int32_t>(*rank) : asked;
    origin.attempt = to_int(answer.header("Lockstep-Log-Attempt"));
    if (before && !origin.attempt) {
        origin.attempt = before->attempt;
    }
    return origin;
}

bool is_other_log(const LogOrigin& before, const LogOrigin& now) {
    return before.rank != now.rank ||
           (before.attempt && now.attempt && *before.attempt != *now.attempt);
}

LogCursor::LogCursor(const Client& client, std::string target, std::int32_t rank, std::int64_t tail)
    : client_(client), target_(std::move(target)), rank_(rank), tail_(tail) {}

Result<LogCursor::Piece> LogCursor::next() {
    std::string target = target_;
    if (newer_) {
        target += "&attempt=" + std::to_string(attempt());
    }
    if (offset_ || tail_ == 0) {
        target += "&offset=" + std::to_string(offset_.value_or(0));
    } else {
        target += "&tail=" + std::to_string(tail_);
    }
    auto answer = client_.get(target);
    if (!answer && newer_ && !may_pass(answer.error())) {
        return pass_on(*newer_);
    }
    LOCKSTEP_TRY(answer);
    const LogOrigin origin = origin_of(*answer, rank_, origin_);
    if (newer_ && origin.attempt.value_or(0) != attempt()) {
        const LogOrigin newest = *newer_;
        return go_to(newest);  // it is not what was asked for, and there is no more to be had
    }
    if (origin_ && is_other_log(*origin_, origin)) {  // the offset was of the log before
        if (origin_->attempt && origin.attempt && *origin_->attempt < *origin.attempt) {
            newer_ = origin;
            Piece rest;
            rest.more = true;
            return rest;
        }
        return go_to(origin);
    }
    origin_ = origin;
    const auto next = to_int(answer->header("Lockstep-Log-Next"));
    if (next) {
        offset_ = next;
    }
    if (newer_ && answer->body.empty()) {
        return pass_on(*newer_);
    }
    Piece piece;
    piece.more = !answer->body.empty() && next;
    piece.text = std::move(answer->body);
    return piece;
}

Result<LogCursor::Piece> LogCursor::pass_on(LogOrigin newest) {
    for (std::int64_t number = attempt() + 1; number < newest.attempt.value_or(0); ++number) {
        const auto answer = client_.get(target_ + "&attempt=" + std::to_string(number) + "&tail=1");
        if (!answer && answer.error().code == Errc::not_found) {
            continue;  // it started no ranks
        }
        if (!answer && answer.error().code == Errc::invalid) {
            break;  // an older lockstepd does not know the parameter
        }
        LOCKSTEP_TRY(answer);
        return go_to(origin_of(*answer, rank_, std::nullopt));
    }
    return go_to(newest);
}

LogCursor::Piece LogCursor::go_to(const LogOrigin& other) {
    if (newer_ && newer_->attempt == other.attempt) {
        newer_.reset();
    }
    origin_ = other;
    offset_ = 0;
    Piece piece;
    piece.other = piece.more = true;
    return piece;
}

LogStream::LogStream(const Client& client, const std::string& target, std::int32_t rank,
                     std::int64_t tail)
    : cursor_(client, target, rank, tail), held_rank_(rank) {}

Result<bool> LogStream::fetch(const std::function<bool(std::int32_t rank)>& is_given) {
    const auto piece = cursor_.next();
    LOCKSTEP_TRY(piece);
    if (piece->other) {
        finish();
    }
    held_rank_ = cursor_.rank();
    held_attempt_ = cursor_.attempt();
    if (piece->other || (piece->text.empty() && piece->more)) {
        return true;
    }
    if (is_given(cursor_.rank())) {
        return cursor_.is_behind() && piece->more;  // of a later attempt it may not be
    }
    held_ += piece->text;
    std::size_t begin = 0;
    for (std::size_t end = held_.find('\n'); end != std::string::npos;
         end = held_.find('\n', begin)) {
        add(std::string_view{held_}.substr(begin, end - begin));
        begin = end + 1;
    }
    held_.erase(0, begin);
    if (held_.size() > kLongestHeldLine) {
        const std::size_t text = stamp_of(held_).text;
        held_.replace(text, std::string::npos, compacted(std::string_view{held_}.substr(text)));
    }
    if (held_.size() > kLongestHeldLine) {
        finish();
    }
    return !piece->text.empty();
}

void LogStream::finish() {
    if (!held_.empty()) {
        add(std::exchange(held_, {}));
    }
}

LogLine LogStream::take() {
    LogLine line = std::move(lines_.front());
    lines_.pop_front();
    return line;
}

std::string LogStream::unfinished() const {
    return held_.substr(stamp_of(held_).text);
}

void LogStream::add(std::string_view stamped) {
    LogLine line;
    line.rank = held_rank_;
    line.attempt = held_attempt_;
    const Stamp stamp = stamp_of(stamped);
    line.time = stamp.time;
    line.generation = stamp.generation;
    line.text = stamped.substr(stamp.text);
    last_ = line.time.value_or(last_);
    line.order = last_;
    lines_.push_back(std::move(line));
}

}  // namespace lockstep::cli
