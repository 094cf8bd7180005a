#include "daemon/http/logs/log_search.hpp"

#include "daemon/http/http_limits.hpp"
#include "daemon/http/logs/log_times.hpp"
#include "daemon/http/logs/rank_log_reader.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/wire/wire.hpp"

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kShareLeast = 64U << 10U;  // of each rank's output

bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// {0,1,2,3,7} → "0-3,7"; ascending.
std::string ranges_of(const std::vector<std::int32_t>& ranks) {
    std::string out;
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t end = i;
        while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) {
            ++end;
        }
        out += out.empty() ? "" : ",";
        out += std::to_string(ranks[i]);
        if (end > i) {
            out += "-" + std::to_string(ranks[end]);
        }
        i = end + 1;
    }
    return out;
}

class Search {
  public:
    explicit Search(const LogSearch& ask) : ask_(ask) {}

    Json run() {
        const std::size_t share =
            std::max(ask_.bytes / std::max<std::size_t>(ask_.ranks.size(), 1), kShareLeast);
        std::size_t looked_at = 0;
        for (const std::int32_t rank : ask_.ranks) {
            if (bytes_ >= ask_.bytes || std::chrono::steady_clock::now() >= ask_.until) {
                truncated_ = true;
                break;
            }
            ++looked_at;
            one_rank(rank, share);
        }
        Json out = Json::object();
        out["items"] = Json::array();
        for (const Finding& one : found_) {
            Json item = Json::object();
            item["text"] = one.text;
            item["count"] = one.count;
            item["ranks"] = ranges_of(one.ranks);
            item["first"]["rank"] = one.ranks.front();
            item["first"]["offset"] = one.offset;
            if (one.time != 0) {
                item["first"]["time"] = to_rfc3339(one.time);
            }
            out["items"].push_back(std::move(item));
        }
        out["ranks"] = ask_.ranks.size();
        out["searched_ranks"] = looked_at;
        out["searched_bytes"] = bytes_;
        out["truncated"] = truncated_;
        return out;
    }

  private:
    struct Finding {
        std::string text;
        std::uint64_t count = 0;
        std::vector<std::int32_t> ranks;
        std::int64_t offset = 0;
        UnixMillis time = 0;
    };

    void one_rank(std::int32_t rank, std::size_t share) {
        path_ = (std::filesystem::path{ask_.folder} / wire::rank_log_name(rank)).string();
        times_.reset();
        const auto reader = RankLogReader::open(path_);
        const auto size = reader ? reader->size() : Result<std::int64_t>{0};
        if (!reader || !size) {
            return;  // it has printed nothing, or it cannot be read
        }
        std::int64_t at = std::max<std::int64_t>(*size - static_cast<std::int64_t>(share), 0);
        bool whole_line = at == 0;
        truncated_ = truncated_ || at > 0;
        while (at < *size && std::chrono::steady_clock::now() < ask_.until) {
            const auto slice = reader->read(at, limits::kBodyBytes);
            if (!slice || slice->next <= at) {
                return;
            }
            bytes_ += slice->text.size();
            std::string_view text = slice->text;
            // Behind a hole offsets count from the end: the line that tells of it is no output.
            const std::int64_t base = slice->next - static_cast<std::int64_t>(text.size());
            std::size_t begin = 0;
            if (!whole_line) {
                begin = std::min(text.find('\n'), text.size() - 1) + 1;
            }
            std::size_t end = text.size();
            if (slice->next < *size) {
                const auto last = text.rfind('\n');
                end = last == std::string_view::npos || last < begin ? text.size() : last + 1;
            }
            lines(rank, text.substr(begin, end - begin), base + static_cast<std::int64_t>(begin));
            whole_line = true;  // of a line longer than a piece, each piece is one
            at = base + static_cast<std::int64_t>(end);
        }
    }

    void lines(std::int32_t rank, std::string_view text, std::int64_t offset) {
        std::size_t at = 0;
        while (at < text.size()) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            const std::string_view line = text.substr(at, end - at);
            const bool good = ask_.pattern ? ask_.pattern->is_in(line)
                                           : line.find(ask_.text) != std::string_view::npos;
            if (good) {
                take(rank, line, offset + static_cast<std::int64_t>(at));
            }
            at = end + 1;
        }
    }

    void take(std::int32_t rank, std::string_view line, std::int64_t offset) {
        std::string key = folded_line(line.substr(0, limits::kLineBytes));
        auto known = places_.find(key);
        if (known == places_.end()) {
            if (found_.size() >= ask_.limit) {
                truncated_ = true;
                return;
            }
            Finding made;
            made.text = printable(line.substr(0, limits::kLogFindingBytes));
            made.offset = offset;
            if (!times_) {
                times_ = LogTimes::open(path_);
            }
            if (const auto mark = times_->at(offset)) {
                made.time = mark->time;
            }
            known = places_.emplace(std::move(key), found_.size()).first;
            found_.push_back(std::move(made));
        }
        Finding& one = found_[known->second];
        ++one.count;
        if (one.ranks.empty() || one.ranks.back() != rank) {
            one.ranks.push_back(rank);
        }
    }

    const LogSearch& ask_;
    std::vector<Finding> found_;
    std::unordered_map<std::string, std::size_t> places_;
    std::string path_;
    std::optional<LogTimes> times_;
    std::size_t bytes_ = 0;
    bool truncated_ = false;
};

}  // namespace

std::string folded_line(std::string_view line) {
    std::string out;
    out.reserve(line.size());
    for (std::size_t i = 0; i < line.size();) {
        if (line.substr(i, 2) == "0x") {
            i += 2;
            while (i < line.size() && is_hex(line[i])) {
                ++i;
            }
            out += '#';
        } else if (line[i] >= '0' && line[i] <= '9') {
            while (i < line.size() && line[i] >= '0' && line[i] <= '9') {
                ++i;
            }
            out += '#';
        } else {
            out += line[i++];
        }
    }
    return out;
}

Json search_logs(const LogSearch& search) {
    return Search{search}.run();
}

}  // namespace lockstep
