#include "daemon/http/routes/log_follower.hpp"

#include "daemon/http/routes/folder_reads.hpp"
#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"

#include <filesystem>
#include <utility>

namespace lockstep {
namespace {
constexpr std::chrono::milliseconds kLook{200};
constexpr std::chrono::milliseconds kLookLater{1000};  // at what has been quiet for so long:
constexpr std::chrono::milliseconds kQuiet{5'000};
constexpr std::chrono::milliseconds kLookRarely{2000};
constexpr std::chrono::milliseconds kLongQuiet{60'000};
constexpr std::size_t kPiece = 64U << 10U;
}  // namespace

std::chrono::milliseconds look_pause(std::chrono::milliseconds quiet) {
    return quiet < kQuiet ? kLook : quiet < kLongQuiet ? kLookLater : kLookRarely;
}

LogFollower::LogFollower(RouteContext context, Caller caller, std::string id, Asked asked)
    : context_(std::move(context)),
      timer_(context_.io),
      caller_(std::move(caller)),
      id_(std::move(id)),
      asked_(asked),
      at_{{}, nullptr, asked.offset, asked.tail} {
    if (asked.first > 0) {
        passed_ = asked.first - 1;
    }
}

void LogFollower::close() {
    closed_ = true;
    timer_.cancel();
}

LogFollower::Piece LogFollower::read_piece(Place at, const std::string& path,
                                           const std::string& instead) {
    Piece piece;
    if (!at.reader || at.path != path) {
        auto opened = RankLogReader::open(path);
        // Within an attempt the launcher's output is left only for the rank's own.
        const bool begins = !at.reader || std::filesystem::path{at.path}.parent_path() !=
                                              std::filesystem::path{path}.parent_path();
        const bool other = !opened && begins && !instead.empty();
        if (other) {
            opened = RankLogReader::open(instead);
        }
        if (opened) {
            if (!at.path.empty() && at.path != path) {
                at.offset = 0;
            }
            at.path = other ? instead : path;
            at.reader = std::make_shared<const RankLogReader>(std::move(*opened));
            if (const auto lines = std::exchange(at.tail, std::nullopt)) {
                at.offset = at.reader->tail(*lines, limits::kBodyBytes).value_or(0);
            }
            if (at.offset > 0) {
                const auto before = at.reader->read(at.offset - 1, 1);
                piece.begun_cut = before && !before->text.empty() && before->text.front() != '\n';
            }
        }  // else it is not written yet
    }
    if (at.reader) {
        if (auto slice = at.reader->read(at.offset, kPiece)) {
            at.offset = slice->next;
            piece.text = std::move(slice->text);
        }
    }
    piece.next = std::move(at);
    return piece;
}

Task<std::optional<std::string>> LogFollower::read_on(std::string path, std::string instead) {
    std::string folder = std::filesystem::path{path}.parent_path().string();
    std::function<Piece()> read = [at = at_, path = std::move(path), instead = std::move(instead)] {
        return read_piece(at, path, instead);
    };
    auto piece = co_await read_in_folder<Piece>(context_, std::move(folder), std::move(read));
    if (!piece) {
        co_return std::nullopt;
    }
    at_ = std::move(piece->next);
    if (piece->begun_cut) {
        cut_ = true;
        given_from_ = std::filesystem::path{at_.path}.parent_path().string();
    }
    if (!piece->text.empty()) {
        std::string from = std::filesystem::path{at_.path}.parent_path().string();
        if (cut_ && from != given_from_) {
            piece->text.insert(0, "\n");  // the attempt before left its last line without one
        }
        cut_ = piece->text.back() != '\n';
        given_from_ = std::move(from);
        quiet_ = {};
    }
    co_return std::move(piece->text);
}

Task<Result<LogFollower::Now>> LogFollower::place_now() {
    const auto newest =
        co_await context_.control.log_place(caller_, id_, asked_.rank, asked_.attempt);
    LOCKSTEP_CO_TRY(newest);
    if (!passed_) {
        passed_ = newest->attempt - 1;
    }
    while (asked_.attempt == 0 && *passed_ + 1 < newest->attempt) {
        const auto older =
            co_await context_.control.log_place(caller_, id_, asked_.rank, *passed_ + 1);
        if (older) {
            co_return Now{*older, true};
        }
        if (older.error().code != Errc::not_found) {
            co_return fail(older.error());
        }
        ++*passed_;  // it started no ranks
    }
    co_return Now{*newest, false};
}

Task<std::optional<std::string>> LogFollower::next() {
    while (!closed_) {
        if (at_.reader) {
            const std::string nowhere;
            auto text = co_await read_on(at_.path, nowhere);
            if (text && !text->empty()) {
                co_return text;
            }
        }
        // Asked before the last look: what was written until the job ended is not missed.
        const auto now = co_await place_now();
        if (!now && now.error().code != Errc::unavailable) {
            co_return std::nullopt;
        }
        if (now && !closed_ && at_.reader && at_.path != now->place.path &&
            at_.path != now->place.instead) {
            // What came since the look above in the attempt before: nothing more does.
            const std::string nowhere;
            auto text = co_await read_on(at_.path, nowhere);
            if (text && !text->empty()) {
                co_return text;
            }
        }
        if (now && !closed_) {
            auto text = co_await read_on(now->place.path, now->place.instead);
            if (text && !text->empty()) {
                co_return text;
            }
            if (text && now->newer) {
                ++*passed_;
                continue;
            }
            if (text && !now->place.may_grow) {
                co_return std::nullopt;
            }
        }
        if (!closed_) {
            const auto pause = look_pause(quiet_);
            quiet_ += pause;
            co_await sleep_on(timer_, pause);
        }
    }
    co_return std::nullopt;
}

}  // namespace lockstep
