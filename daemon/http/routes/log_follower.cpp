#include "daemon/http/routes/log_follower.hpp"

#include "daemon/http/routes/folder_reads.hpp"
#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"

#include <filesystem>
#include <utility>

namespace lockstep {
namespace {
constexpr auto kLook = std::chrono::milliseconds{200};
constexpr std::size_t kPiece = 64U << 10U;
}  // namespace

LogFollower::LogFollower(RouteContext context, Caller caller, std::string id, Asked asked)
    : context_(std::move(context)),
      timer_(context_.io),
      caller_(std::move(caller)),
      id_(std::move(id)),
      asked_(asked),
      at_{{}, nullptr, asked.offset, asked.tail} {}

void LogFollower::close() {
    closed_ = true;
    timer_.cancel();
}

LogFollower::Piece LogFollower::read_piece(Place at, const std::string& path,
                                           const std::string& instead) {
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
        }  // else it is not written yet
    }
    Piece piece;
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
    co_return std::move(piece->text);
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
        const auto place =
            co_await context_.control.log_place(caller_, id_, asked_.rank, asked_.attempt);
        if (!place && place.error().code != Errc::unavailable) {
            co_return std::nullopt;
        }
        if (place && !closed_ && at_.reader && at_.path != place->path) {
            // What came since the look above, and in that log nothing does any more.
            const std::string nowhere;
            auto text = co_await read_on(at_.path, nowhere);
            if (text && !text->empty()) {
                co_return text;
            }
        }
        if (place && !closed_) {
            auto text = co_await read_on(place->path, place->instead);
            if (text && !text->empty()) {
                co_return text;
            }
            if (text && !place->may_grow) {
                co_return std::nullopt;
            }
        }
        if (!closed_) {
            co_await sleep_on(timer_, kLook);
        }
    }
    co_return std::nullopt;
}

}  // namespace lockstep
