// What a launcher's ranks print.
#include "job/agent/node/node_child.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep {
namespace {

constexpr std::size_t kChildReadBytes = 64U << 10U;
constexpr int kFileTurns = 64;  // of them
// A file's birth is told by the kernel's coarse clock, which is up to a tick behind ours.
constexpr UnixMillis kCoarseClock = 20;

std::vector<char>& child_buffer() {
    static std::vector<char> buffer(kChildReadBytes);
    return buffer;
}

}  // namespace

// The first rank's log is the node's, with what its launcher says.
void NodeChildren::open_log(Child& child) {
    if (child.local <= 0 || child.log) {
        return;
    }
    const std::int32_t rank = setup_->first_rank + child.local;
    RankLog::Caps caps;
    caps.tail = limits::kRankTailBytes;
    auto log =
        RankLog::open(setup_->logs / wire::rank_log_name(rank), caps, setup_->generation, logs_);
    if (!log) {
        log::warn("no log for a rank, its output goes to its node's",
                  {{"rank", rank}, {"why", log.error().message}});
        return;
    }
    log->mask(setup_->mask);
    if (setup_->generation > 1 && log->size() > 0) {
        log->append("[lockstep: generation " + std::to_string(setup_->generation) + " starts]\n");
    }
    child.log = std::move(*log);
}

void NodeChildren::take_output(const ChildPointer& child, UniqueFd output) {
    ErrorCode ec;
    child->output.close(ec);
    ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
    open_log(*child);
    if (child->local >= 0 && !child->reader) {
        child->reader = make_reader();
    }
    child->output.assign(output.release());
    tasks_.spawn("child output", read_output(child));
}

// One turn; false at the end of the output.
bool NodeChildren::read_some(Child& child) {
    auto& buffer = child_buffer();
    const auto got = ::read(child.output.native_handle(), buffer.data(), buffer.size());
    if (got < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    const std::string_view bytes{buffer.data(), static_cast<std::size_t>(got)};
    if (!bytes.empty()) {
        if (child.log) {
            child.log->append(bytes);
        } else {
            handlers_.node_log(bytes);
        }
    }
    if (child.reader) {
        captured(child.local, LossFrom::own_output,
                 bytes.empty() ? child.reader->end(now_seconds())
                               : child.reader->feed(bytes, now_seconds()));
        hear(child.local, *child.reader);
    }
    return !bytes.empty();
}

Task<void> NodeChildren::read_output(ChildPointer child) {
    for (;;) {
        ErrorCode ec;
        co_await child->output.async_wait(net::posix::stream_descriptor::wait_read, into(ec));
        if (ec || !child->output.is_open()) {
            co_return;
        }
        if (!read_some(*child)) {
            child->output.close(ec);
            co_return;
        }
    }
}

// What its launcher has sent into a file: read as it grows, from here on; from its beginning if it
// is younger than what is known of the rank. The time of its birth comes from a clock that is
// some milliseconds behind.
void NodeChildren::find_files(Child& child) {
    for (const char* number : {"1", "2"}) {
        const std::string path = "/proc/" + std::to_string(child.pid) + "/fd/" + number;
        struct statx info{};
        if (::statx(AT_FDCWD, path.c_str(), 0, STATX_BASIC_STATS | STATX_BTIME, &info) != 0 ||
            !S_ISREG(info.stx_mode)) {
            continue;
        }
        const auto same = [&](const Child::File& file) { return file.inode == info.stx_ino; };
        if (std::any_of(child.files.begin(), child.files.end(), same)) {
            continue;
        }
        Child::File file;
        file.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        const UnixMillis born =
            (info.stx_mask & STATX_BTIME) == 0
                ? 0
                : info.stx_btime.tv_sec * 1000 + info.stx_btime.tv_nsec / 1'000'000;
        file.inode = info.stx_ino;
        file.offset =
            born >= child.adopted_at - kCoarseClock ? 0 : static_cast<std::int64_t>(info.stx_size);
        file.reader = make_reader();
        if (file.fd) {
            open_log(child);
            child.files.push_back(std::move(file));
        }
    }
}

void NodeChildren::read_files(Child& child) {
    auto& buffer = child_buffer();
    for (Child::File& file : child.files) {
        for (int turn = 0; turn < kFileTurns; ++turn) {
            const auto got = ::pread(file.fd.get(), buffer.data(), buffer.size(),
                                     static_cast<off_t>(file.offset));
            if (got <= 0) {
                break;
            }
            file.offset += got;
            if (child.log) {
                child.log->append({buffer.data(), static_cast<std::size_t>(got)});
            }
            if (file.reader) {
                captured(child.local, LossFrom::own_output,
                         file.reader->feed({buffer.data(), static_cast<std::size_t>(got)},
                                           now_seconds()));
                hear(child.local, *file.reader);
            }
        }
    }
}

// A bar's last draw lacks the newline.
void NodeChildren::end_files(Child& child) {
    read_files(child);
    for (Child::File& file : child.files) {
        if (file.reader) {
            captured(child.local, LossFrom::own_output, file.reader->end(now_seconds()));
            hear(child.local, *file.reader);
        }
    }
}

// What a line has said of how this rank trains.
void NodeChildren::hear(std::int32_t local, OutputReader& reader) {
    if (auto warning = reader.take_warning()) {
        warn_once(local < 0 ? -1 : setup_->first_rank + local, std::move(*warning));
    }
}

void NodeChildren::captured(std::int32_t local, LossFrom from, std::vector<RankReport> reports) {
    if (reports.empty() || local < 0) {
        return;
    }
    LossFrom& believed = loss_from_[static_cast<std::size_t>(local)];
    believed = believed == LossFrom::nowhere ? from : believed;
    if (believed == from) {
        handlers_.captured(setup_->first_rank + local, std::move(reports));
    }
}

void NodeChildren::printed(std::string_view bytes) {
    if (!setup_ || !unmarked_) {
        return;
    }
    // Of one piece of output, so that what came together is read together.
    std::map<std::int32_t, std::string> marked;
    std::string rest;
    for (std::size_t at = 0; at < bytes.size();) {
        const auto newline = bytes.find('\n', at);
        const auto end = newline == std::string_view::npos ? bytes.size() : newline + 1;
        const std::size_t room = limits::kLineBytes - std::min(partial_.size(), limits::kLineBytes);
        partial_.append(bytes.substr(at, std::min(end - at, room)));
        at = end;
        if (newline == std::string_view::npos) {
            break;
        }
        if (partial_.back() != '\n') {
            partial_ += '\n';
        }
        const auto line = marked_line(partial_);
        const auto local =
            line ? local_rank_of(line->identity, setup_->first_rank, setup_->count) : std::nullopt;
        if (local) {
            marked[*local] += line->text;
        } else {
            rest += partial_;
        }
        partial_.clear();
    }
    for (const auto& [local, text] : marked) {
        if (const ChildPointer& child = children_[static_cast<std::size_t>(local)];
            child && loss_from_[static_cast<std::size_t>(local)] == LossFrom::nowhere) {
            // A launcher that copies a rank's file may copy half a line, and another rank's behind
            // it: what the file itself says is believed first.
            find_files(*child);
            read_files(*child);
        }
        auto reader = marked_.find(local);
        if (reader == marked_.end()) {
            reader = marked_.emplace(local, std::move(*make_reader())).first;
        }
        captured(local, LossFrom::launcher, reader->second.feed(text, now_seconds()));
        hear(local, reader->second);
    }
    if (!rest.empty()) {
        unmarked(unmarked_->feed(rest, now_seconds()));
        hear(-1, *unmarked_);
    }
}

// Losses without a mark: of the node's only rank, or of a launcher that has started none.
void NodeChildren::unmarked(std::vector<RankReport> reports) {
    if (!reports.empty() && known_count() == 0) {
        handlers_.catch_up();
    }
    const bool alone = setup_->count == 1 && !crowded_;
    // One that has started nobody: no rank is known, none was marked, no process lives below it.
    const bool single = !reports.empty() && known_count() == 0 && marked_.empty() &&
                        children_of(setup_->launcher).empty();
    if (alone || single) {
        captured(0, LossFrom::launcher, std::move(reports));
        return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (unknown_losses_ == 0 && !reports.empty()) {
        unknown_since_ = now;
    }
    unknown_losses_ += reports.size();
    tell_of_unknown(false);
}

void NodeChildren::tell_of_unknown(bool over) {
    const bool nobody = std::all_of(loss_from_.begin(), loss_from_.end(),
                                    [](LossFrom from) { return from == LossFrom::nowhere; });
    const auto waited = std::chrono::steady_clock::now() - unknown_since_;
    if (unknown_losses_ > 0 && nobody && (over || waited >= limits::kHelloOfRankPatience)) {
        warn_once(-1, "the losses that the ranks of " + setup_->node +
                          " print cannot be told apart: they share one output and do not say who "
                          "they are. Use lockstep.report(), torchrun --tee 3, or Lockstep's Python "
                          "hooks");
    }
}

}  // namespace lockstep
