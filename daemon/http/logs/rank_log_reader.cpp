#include "daemon/http/logs/rank_log_reader.hpp"

#include "job/base/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace lockstep {

std::string dropped_notice(std::int64_t bytes) {
    return "[lockstep: " + std::to_string(bytes) + " bytes dropped]\n";
}

Result<RankLogReader> RankLogReader::open(const std::string& path) {
    if (is_foreign(path)) {
        auto fd = open_foreign(path);
        return fd ? Result<RankLogReader>{RankLogReader{std::move(*fd)}} : fail(fd.error());
    }
    return open_at(AT_FDCWD, path);
}

Result<RankLogReader> RankLogReader::open_below(const std::string& directory,
                                                const std::vector<std::string>& folders,
                                                const std::string& name) {
    if (is_foreign(directory)) {
        std::filesystem::path path{directory};
        for (const std::string& folder : folders) {
            path /= folder;
        }
        return open((path / name).string());
    }
    UniqueFd at{::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    for (const std::string& folder : folders) {
        if (at) {
            at = UniqueFd{
                ::openat(at.get(), folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)};
        }
    }
    if (!at) {
        // A link in a folder's place is ENOTDIR: it was never made by an agent.
        if (errno == ENOTDIR || errno == ELOOP) {
            return fail(Errc::denied, "not a folder of the job's own");
        }
        return fail(errno_error("evidence", errno));
    }
    return open_at(at.get(), name);
}

Result<RankLogReader> RankLogReader::open_at(int folder, const std::string& path) {
    // The job's user owns the folder: no link may lead elsewhere, no pipe may block.
    UniqueFd fd{
        ::openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)};
    if (!fd) {
        if (errno == ELOOP || errno == ENXIO) {
            return fail(Errc::denied, "the log is not a regular file");
        }
        return fail(errno_error("log", errno));
    }
    struct stat info{};
    if (::fstat(fd.get(), &info) != 0) {
        return fail(errno_error("log", errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return fail(Errc::denied, "the log is not a regular file");
    }
    if (info.st_nlink > 1) {
        // Without fs.protected_hardlinks users may link to a file that they cannot read.
        return fail(Errc::denied, "the log is a hard link: the file has another name, too");
    }
    return RankLogReader{std::move(fd)};
}

Result<std::int64_t> RankLogReader::size() const {
    struct stat info{};
    if (::fstat(fd_.get(), &info) != 0) {
        return fail(errno_error("log", errno));
    }
    return static_cast<std::int64_t>(info.st_size);
}

std::int64_t RankLogReader::next_data(std::int64_t offset, std::int64_t size) const {
    const auto at = ::lseek(fd_.get(), offset, SEEK_DATA);
    if (at < 0) {
        // ENXIO: only a hole up to the end. Else the file system knows no holes: all is data.
        return errno == ENXIO ? size : offset;
    }
    return std::min<std::int64_t>(at, size);
}

std::int64_t RankLogReader::next_hole(std::int64_t offset, std::int64_t size) const {
    const auto at = ::lseek(fd_.get(), offset, SEEK_HOLE);
    return at < 0 ? size : std::min<std::int64_t>(at, size);
}

std::int64_t RankLogReader::hole_begin(std::int64_t offset, std::int64_t size) const {
    // lseek only looks ahead. The agent leaves one hole; a job's user may have made any number.
    constexpr int kHoles = 64;
    std::int64_t hole = next_hole(0, size);
    for (int seen = 0; seen < kHoles && hole <= offset; ++seen) {
        const std::int64_t data = next_data(hole, size);
        if (data > offset) {
            return hole;
        }
        hole = next_hole(data, size);
    }
    return offset;
}

Status RankLogReader::append(std::string& out, std::int64_t offset, std::size_t bytes) const {
    const std::size_t before = out.size();
    out.resize(before + bytes);
    std::size_t have = 0;
    while (have < bytes) {
        const auto got = ::pread(fd_.get(), out.data() + before + have, bytes - have,
                                 offset + static_cast<std::int64_t>(have));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            out.resize(before);
            return fail(errno_error("log", errno));
        }
        if (got == 0) {
            break;  // cut short by somebody: what is here is the end
        }
        have += static_cast<std::size_t>(got);
    }
    out.resize(before + have);
    return {};
}

bool RankLogReader::begins_line(std::int64_t offset) const {
    char before = '\n';
    return offset == 0 || ::pread(fd_.get(), &before, 1, offset - 1) != 1 || before == '\n';
}

Result<RankLogReader::Slice> RankLogReader::read(std::int64_t offset, std::size_t most,
                                                 LogTimes* times) const {
    const auto total = size();
    LOCKSTEP_TRY(total);
    Slice slice;
    slice.offset = std::min(offset, *total);
    slice.next = slice.offset;
    bool begins = times != nullptr && begins_line(slice.offset);
    while (slice.next < *total && most > 0) {
        const std::int64_t data = next_data(slice.next, *total);
        if (data > slice.next) {
            if (!slice.text.empty() && slice.text.back() != '\n') {
                slice.text += '\n';
            }
            slice.text += (times != nullptr ? "- - " : "") + dropped_notice(data - slice.next);
            if (!slice.dropped) {
                slice.dropped = Hole{hole_begin(slice.next, *total), data};
            }
            slice.next = data;
            begins = true;
            continue;
        }
        const std::int64_t end = next_hole(data, *total);
        const auto bytes = std::min<std::size_t>(static_cast<std::size_t>(end - data), most);
        const std::size_t before = slice.text.size();
        LOCKSTEP_TRY(append(slice.text, data, bytes));
        const std::size_t got = slice.text.size() - before;
        if (got == 0) {
            break;
        }
        if (times != nullptr) {
            const std::string piece = slice.text.substr(before);
            slice.text.resize(before);
            slice.text += times->stamp(piece, slice.next, begins);
            begins = piece.back() == '\n';
        }
        slice.next += static_cast<std::int64_t>(got);
        most -= got;
    }
    return slice;
}

Result<std::int64_t> RankLogReader::tail(std::int64_t lines, std::size_t most) const {
    const auto total = size();
    LOCKSTEP_TRY(total);
    const std::int64_t floor = std::max<std::int64_t>(0, *total - static_cast<std::int64_t>(most));
    std::int64_t end = *total;
    std::int64_t seen = 0;
    std::string block;
    constexpr std::int64_t kBlock = 64LL << 10U;
    while (end > floor) {
        const std::int64_t begin = std::max(floor, end - kBlock);
        // Behind the last hole of the block: what lies before it is another piece of the output.
        std::int64_t data = next_data(begin, end);
        for (auto hole = next_hole(data, end); hole < end; hole = next_hole(data, end)) {
            data = next_data(hole, end);
        }
        block.clear();
        LOCKSTEP_TRY(append(block, data, static_cast<std::size_t>(end - data)));
        for (std::size_t i = block.size(); i > 0; --i) {
            const std::int64_t at = data + static_cast<std::int64_t>(i) - 1;
            if (block[i - 1] == '\n' && at + 1 < *total && ++seen == lines) {
                return at + 1;
            }
        }
        if (data > begin) {
            return data;
        }
        end = begin;
    }
    return floor;
}

}  // namespace lockstep
