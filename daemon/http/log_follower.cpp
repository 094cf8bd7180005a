#include "daemon/http/log_follower.hpp"

#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"

#include <utility>

namespace lockstep {
namespace {
constexpr auto kLook = std::chrono::milliseconds{200};
constexpr std::size_t kPiece = 64U << 10U;  // a turn of the control thread takes microseconds
}  // namespace

LogFollower::LogFollower(net::io_context& io, Control& control, Caller caller, std::string id,
                         std::int32_t rank, std::int64_t offset, std::optional<std::int64_t> tail)
    : timer_(io),
      control_(control),
      caller_(std::move(caller)),
      id_(std::move(id)),
      rank_(rank),
      offset_(offset),
      tail_(tail) {}

void LogFollower::close() {
    closed_ = true;
    timer_.cancel();
}

void LogFollower::change_to(const LogPlace& place) {
    if (reader_ && place.path == path_) {
        return;
    }
    auto opened = RankLogReader::open(place.path);
    if (!opened) {
        return;  // not written yet
    }
    if (!path_.empty() && place.path != path_) {
        offset_ = 0;
    }
    path_ = place.path;
    reader_.emplace(std::move(*opened));
    if (const auto lines = std::exchange(tail_, std::nullopt)) {
        offset_ = reader_->tail(*lines, limits::kBodyBytes).value_or(0);
    }
}

std::string LogFollower::read_some() {
    if (!reader_) {
        return {};
    }
    auto slice = reader_->read(offset_, kPiece);
    if (!slice) {
        return {};
    }
    offset_ = slice->next;
    return std::move(slice->text);
}

Task<std::optional<std::string>> LogFollower::next() {
    // A reader as fast as the disk must not keep the thread: each piece is a turn of its own.
    co_await net::post(net::use_awaitable);
    while (!closed_) {
        auto text = read_some();
        if (!text.empty()) {
            co_return text;
        }
        // Asked before the last look: what was written until the rank ended is not missed.
        const auto place = co_await control_.log_place(caller_, id_, rank_);
        if (!place && place.error().code != Errc::unavailable) {
            co_return std::nullopt;
        }
        if (place) {
            change_to(*place);
            text = read_some();
            if (!text.empty()) {
                co_return text;
            }
            if (!place->may_grow) {
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
