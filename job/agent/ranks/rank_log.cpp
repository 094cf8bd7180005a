#include "job/agent/ranks/rank_log.hpp"

#include "job/base/text.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

Result<RankLog> RankLog::open(const std::filesystem::path& path, const Caps& caps,
                              std::int32_t generation, std::shared_ptr<LogWriter> writer) {
    auto file = LogFile::open(path, caps, generation);
    LOCKSTEP_TRY(file);
    std::shared_ptr<LogFile> shared =
        writer ? writer->share(std::move(*file)) : std::shared_ptr<LogFile>{std::move(*file)};
    return RankLog{std::move(shared), std::move(writer), caps.tail};
}

void RankLog::mask(const std::shared_ptr<const SecretMask>& mask) {
    if (mask) {
        masked_.emplace(mask);
    }
}

void RankLog::append(std::string_view bytes, UnixMillis now) {
    if (masked_) {
        write(masked_->feed(bytes), now);
    } else {
        write(bytes, now);
    }
}

void RankLog::end() {
    if (masked_) {
        write(masked_->end(), SystemClock{}.wall());
    }
    if (writer_) {
        waiting_ = writer_->end(file_);
    } else {
        file_->end();
    }
}

void RankLog::write(std::string_view bytes, UnixMillis now) {
    if (bytes.empty()) {
        return;
    }
    keep_tail(bytes);
    if (writer_) {
        writer_->append(file_, bytes, now);
    } else {
        file_->append(bytes, now);
    }
}

std::string RankLog::loss_warning(std::int32_t rank) const {
    const LogFile::State state = file_->state();
    if (state.lost > 0) {
        return "rank " + std::to_string(rank) + " lost " + std::to_string(state.lost) +
               " bytes of its output: " + state.lost_why;
    }
    return waiting_ == 0 ? ""
                         : "the last " + std::to_string(waiting_) +
                               " bytes of the output of rank " + std::to_string(rank) +
                               " were not in its log when it ended: the file system did not "
                               "answer in time";
}

void RankLog::keep_tail(std::string_view bytes) {
    if (bytes.size() >= tail_bytes_) {
        tail_ = bytes.substr(bytes.size() - tail_bytes_);
        return;
    }
    tail_ += bytes;
    if (tail_.size() > 2 * tail_bytes_) {
        tail_.erase(0, tail_.size() - tail_bytes_);
    }
}

std::string RankLog::tail() const {
    const std::string_view all{tail_};
    return printable(all.substr(all.size() - std::min(all.size(), tail_bytes_)));
}

}  // namespace lockstep
