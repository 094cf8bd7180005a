#include "daemon/http/logs/log_times.hpp"

#include "job/base/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::int64_t kMarksAtOnce = 1024;

UniqueFd open_marks(const std::filesystem::path& marks) {
    if (is_foreign(marks)) {
        auto fd = open_foreign(marks);
        return fd ? std::move(*fd) : UniqueFd{};
    }
    return UniqueFd{::open(marks.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
}

}  // namespace

LogTimes LogTimes::open(const std::filesystem::path& path) {
    UniqueFd fd = open_marks(log_marks_path(path));
    struct stat info{};
    if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
        return LogTimes{UniqueFd{}, 0};
    }
    return LogTimes{std::move(fd), info.st_size / static_cast<std::int64_t>(kLogMarkBytes)};
}

// A row that cannot be read is one at the end of everything, so that nothing is stamped with it.
LogMark LogTimes::row(std::int64_t number) {
    const auto held = static_cast<std::int64_t>(block_.size());
    if (number < block_begin_ || number >= block_begin_ + held) {
        block_begin_ = number;
        const auto want =
            static_cast<std::size_t>(std::min(kMarksAtOnce, rows_ - number)) * kLogMarkBytes;
        std::string bytes(want, '\0');
        const auto got = ::pread(fd_.get(), bytes.data(), want,
                                 number * static_cast<std::int64_t>(kLogMarkBytes));
        const auto whole = got < 0 ? 0 : static_cast<std::size_t>(got) / kLogMarkBytes;
        block_.clear();
        for (std::size_t i = 0; i < whole; ++i) {
            block_.push_back(decode_log_mark(bytes.data() + i * kLogMarkBytes));
        }
        if (block_.empty()) {
            return {INT64_MAX, 0, 0};
        }
    }
    return block_[static_cast<std::size_t>(number - block_begin_)];
}

std::optional<LogMark> LogTimes::at(std::int64_t offset) {
    // Lines are asked for in order: mostly the answer lies in the block at hand.
    const auto held = static_cast<std::int64_t>(block_.size());
    std::int64_t low = 0;
    std::int64_t high = rows_;
    const bool to_the_end = block_begin_ + held == rows_;
    if (held > 0 && block_.front().offset <= offset &&
        (block_.back().offset > offset || to_the_end)) {
        low = block_begin_;
        high = block_begin_ + held;
    }
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (row(middle).offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return std::nullopt;
    }
    const LogMark found = row(low - 1);
    // Rows before and behind the answer are at hand for the next lines.
    return found.offset <= offset ? std::optional{found} : std::nullopt;
}

std::string LogTimes::stamp(std::string_view text, std::int64_t offset, bool begins) {
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    for (std::size_t at = 0; at < text.size();) {
        if (begins) {
            const auto mark = this->at(offset + static_cast<std::int64_t>(at));
            out += mark ? to_rfc3339(mark->time) + " " + std::to_string(mark->generation) + " "
                        : "- - ";
        }
        const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
        out += text.substr(at, end - at);
        begins = true;
        at = end;
    }
    return out;
}

}  // namespace lockstep
