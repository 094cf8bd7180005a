#include "job/agent/nccl/inspector_watch.hpp"

#include "job/base/clock.hpp"
#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/ids.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/spec/own_variables.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

// A plugin from before NCCL 2.31 knows files only, which it would fill.
constexpr std::string_view kOtlpSwitch = "NCCL_INSPECTOR_OTEL_EXPORT";

std::string value_of(const std::map<std::string, std::string>& environment,
                     const std::string& name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string{} : found->second;
}

// "": it can be used.
std::string why_not(const std::string& path) {
    std::error_code ec;
    if (!std::filesystem::is_regular_file(path, ec)) {
        return path + ": " + (ec ? ec.message() : "no regular file");
    }
    const auto bytes = read_file(path, limits::kInspectorPluginBytes);
    if (!bytes) {
        return bytes.error().message;
    }
    return bytes->find(kOtlpSwitch) == std::string::npos
               ? path + " is not an Inspector that sends OTLP"
               : "";
}

std::vector<std::string> folders(const std::string& path) {
    std::vector<std::string> out;
    std::size_t begin = 0;
    while (begin <= path.size()) {
        const std::size_t end = std::min(path.find(':', begin), path.size());
        if (end > begin) {
            out.push_back(path.substr(begin, end - begin));
        }
        begin = end + 1;
    }
    return out;
}

}  // namespace

std::string find_inspector(const JobSpec& spec, const std::map<std::string, std::string>& inherited,
                           const std::filesystem::path& beside, std::string& problem) {
    const bool named_by_job = spec.environment.contains(std::string{kNcclInspector});
    // One process for all ranks says nothing of whose values they are; into an image of Apptainer
    // the plugin's path does not reach.
    if ((spec.resources.gpus_per_node == 0 && !named_by_job) || spec.launch == Launch::node ||
        spec.container.runtime == ContainerRuntime::apptainer) {
        return "";
    }
    const std::string named =
        value_of(named_by_job ? spec.environment : inherited, std::string{kNcclInspector});
    if (named == "off") {
        return "";
    }
    if (!named.empty()) {
        problem = why_not(named);
        return problem.empty() ? named : "";
    }
    std::vector<std::string> places{beside.string()};
    const std::string own = value_of(spec.environment, "LD_LIBRARY_PATH");
    for (std::string& folder :
         folders(own.empty() ? value_of(inherited, "LD_LIBRARY_PATH") : own)) {
        places.push_back(std::move(folder));
    }
    for (const std::string& folder : places) {
        std::string path = folder + "/" + kInspectorFile;
        if (why_not(path).empty()) {
            return path;
        }
    }
    return "";
}

InspectorWatch::InspectorWatch(TaskGroup& tasks, Handlers handlers, Clock clock)
    : tasks_(tasks), handlers_(std::move(handlers)), clock_(std::move(clock)) {}

void InspectorWatch::expect(const std::string& plugin, std::int32_t first_rank,
                            std::int32_t local_ranks) {
    plugin_ = plugin;
    first_rank_ = first_rank;
    if (plugin_.empty()) {
        return;
    }
    if (!std::exchange(tried_, true)) {
        OtlpReceiver::Handlers handlers;
        handlers.who = [this](std::string_view token) { return who(token); };
        handlers.take = [this](std::int32_t rank, const std::string& body) {
            return take(rank, body);
        };
        handlers.left_out = [this](std::int32_t rank, int status) {
            if (!std::exchange(left_out_told_, true)) {
                handlers_.warn("what NCCL's Inspector has measured of rank " +
                               std::to_string(first_rank_ + rank) + " is left out: " +
                               (status == 413
                                    ? "a post of it has more than " +
                                          std::to_string(limits::kOtlpBodyBytes >> 10U) + " KiB"
                                    : "too much comes at a time"));
            }
        };
        auto receiver = OtlpReceiver::listen(tasks_, std::move(handlers));
        if (receiver) {
            receiver_ = std::move(*receiver);
        } else {
            handlers_.warn("NCCL's Inspector is not used: " + receiver.error().message);
        }
    }
    ranks_.resize(static_cast<std::size_t>(std::max(local_ranks, 0)));
    for (Rank& rank : ranks_) {
        const std::string token = rank.token.empty() ? random_secret() : rank.token;
        rank = {};
        rank.token = token;
    }
}

NcclInspector InspectorWatch::place_of(std::int32_t local_rank) const {
    const auto place = static_cast<std::size_t>(local_rank);
    if (plugin_.empty() || !receiver_ || place >= ranks_.size()) {
        return {};
    }
    return {plugin_, "http://127.0.0.1:" + std::to_string(receiver_->port()) + "/v1/metrics",
            ranks_[place].token};
}

std::optional<std::int32_t> InspectorWatch::who(std::string_view token) const {
    std::optional<std::int32_t> found;
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
        if (equal_secret(token, ranks_[place].token)) {
            found = static_cast<std::int32_t>(place);
        }
    }
    return found;
}

bool InspectorWatch::take(std::int32_t local_rank, const std::string& body) {
    if (static_cast<std::size_t>(local_rank) >= ranks_.size()) {
        return false;
    }
    Rank& rank = ranks_[static_cast<std::size_t>(local_rank)];
    auto table = rank.table;  // a copy: nothing is kept of a post that is not understood
    InspectorVisit visit;
    if (table) {
        visit = [&table](const InspectorPoint& point) { table->take(point); };
    }
    const auto post = parse_inspector_post(body, visit);
    if (!post) {
        return false;
    }
    rank.table = std::move(table);
    const auto now = clock_();
    for (std::size_t place = 0; place < kNcclBandwidths; ++place) {
        const auto& value = post->by_place[place];
        // Of all posts since the row before as of one: the largest operations'.
        if (value && (!rank.waiting[place] || tells_more(*value, *rank.newest[place]))) {
            rank.newest[place] = value;
            rank.at[place] = now;
            rank.waiting[place] = true;
        }
    }
    if (rank.row_at && now - *rank.row_at < limits::kInspectorRow) {
        return true;
    }
    RankReport row;
    row.time = wall_seconds();
    for (std::size_t place = 0; place < kNcclBandwidths; ++place) {
        if (std::exchange(rank.waiting[place], false)) {
            row.metrics.emplace_back(nccl_bandwidth_metric(place),
                                     rank.newest[place]->bytes_per_second);
        }
    }
    if (!row.metrics.empty()) {
        rank.row_at = now;
        handlers_.seen(first_rank_ + local_rank, row);
    }
    return true;
}

InspectorWatch::Rank* InspectorWatch::of_rank(std::int32_t rank) {
    const auto place = static_cast<std::size_t>(rank - first_rank_);
    return rank < first_rank_ || place >= ranks_.size() ? nullptr : &ranks_[place];
}

bool InspectorWatch::begin_tables(const std::vector<std::int32_t>& ranks) {
    if (plugin_.empty() || !receiver_) {
        return false;
    }
    for (Rank& rank : ranks_) {
        rank.table.reset();
    }
    for (const std::int32_t rank : ranks) {
        Rank* const known = of_rank(rank);
        if (known != nullptr) {
            known->table.emplace();
            known->table_began = clock_();
        }
    }
    return true;
}

std::optional<std::string> InspectorWatch::end_table(std::int32_t rank) {
    Rank* const known = of_rank(rank);
    const auto table = known == nullptr ? std::nullopt : std::exchange(known->table, std::nullopt);
    if (!table) {
        return std::nullopt;
    }
    std::string text = table->text();
    if (!text.empty()) {
        const auto seconds =
            std::chrono::duration_cast<std::chrono::seconds>(clock_() - known->table_began);
        text = "What NCCL's Inspector posted of rank " + std::to_string(rank) + " in " +
               std::to_string(seconds.count()) + " s. A post is of the " +
               std::to_string(limits::kInspectorPost.count()) +
               " s before it; a value is of all operations of a line in them. GB/s: bus "
               "bandwidth.\n\n" +
               text;
    }
    return text;
}

std::string InspectorWatch::words_of(std::int32_t rank) const {
    const auto place_of_rank = static_cast<std::size_t>(rank - first_rank_);
    if (rank < first_rank_ || place_of_rank >= ranks_.size()) {
        return "";
    }
    const Rank& known = ranks_[place_of_rank];
    std::string out;
    for (std::size_t place = 0; place < kNcclBandwidths; ++place) {
        const auto& value = known.newest[place];
        if (!value) {
            continue;
        }
        const auto age =
            std::chrono::duration_cast<std::chrono::seconds>(clock_() - known.at[place]);
        std::array<char, 200> line{};
        std::snprintf(
            line.data(), line.size(),
            "%-14s %4s node%s %10.3f GB/s bus bandwidth, %llu ranks, %s or more, %.0f us, "
            "%lld s ago\n",
            std::string{nccl_operation_at(place)}.c_str(),
            std::string{nccl_nodes_at(place)}.c_str(), place % 2 == 0 ? " " : "s",
            value->bytes_per_second / 1e9, static_cast<unsigned long long>(value->ranks),
            (std::to_string(value->bytes) + " bytes").c_str(), value->seconds * 1e6,
            static_cast<long long>(age.count()));
        out += line.data();
    }
    return out;
}

}  // namespace lockstep
