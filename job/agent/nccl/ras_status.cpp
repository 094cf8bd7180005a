#include "job/agent/nccl/ras_status.hpp"

#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <numeric>
#include <set>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kNameBytes = 64;  // hashes, hosts, operations
constexpr std::size_t kOperations = 32;
constexpr std::int64_t kLaunches = std::int64_t{1} << 53U;  // a double holds it
constexpr std::int32_t kNcclSuccess = 0;                    // ncclSuccess
constexpr std::int32_t kNcclInProgress = 7;                 // ncclInProgress

// Reads members of one object; the first that is wrong is remembered.
class Members {
  public:
    Members(const Json& object, std::string& wrong) : object_(object), wrong_(wrong) {}

    const Json* find(const char* name) {
        const auto found = object_.is_object() ? object_.find(name) : object_.end();
        if (!object_.is_object() || found == object_.end()) {
            return note(name);
        }
        return &*found;
    }
    std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) {
        const Json* value = find(name);
        if (value == nullptr) {
            return least;
        }
        const bool whole = value->is_number_integer() &&
                           (!value->is_number_unsigned() ||
                            value->get<std::uint64_t>() <= static_cast<std::uint64_t>(most));
        const std::int64_t out = whole ? value->get<std::int64_t>() : most;
        if (!whole || out < least || out > most) {
            note(name);
            return least;
        }
        return out;
    }
    bool boolean(const char* name) {
        const Json* value = find(name);
        if (value != nullptr && !value->is_boolean()) {
            note(name);
            return false;
        }
        return value != nullptr && value->get<bool>();
    }
    std::string text(const char* name) {
        const Json* value = find(name);
        if (value == nullptr || !value->is_string()) {
            note(name);
            return {};
        }
        return printable(
            std::string_view{value->get_ref<const std::string&>()}.substr(0, kNameBytes));
    }
    const Json& list(const char* name) {
        static const Json kNone = Json::array();
        const Json* value = find(name);
        if (value != nullptr && !value->is_array()) {
            note(name);
            return kNone;
        }
        return value == nullptr ? kNone : *value;
    }
    const Json* note(const char* name) {
        wrong_ = wrong_.empty() ? name : wrong_;
        return nullptr;
    }

  private:
    const Json& object_;
    std::string& wrong_;
};

// Ranks of a communicator: in range, and each once.
class Places {
  public:
    Places(std::int32_t size, std::string& wrong) : size_(size), wrong_(wrong) {}
    std::int32_t take(Members& from) {
        const auto rank = static_cast<std::int32_t>(from.integer("rank", 0, size_ - 1));
        if (!taken_.insert(rank).second && wrong_.empty()) {
            wrong_ = "a rank that is there twice";
        }
        return rank;
    }

  private:
    std::int32_t size_;
    std::string& wrong_;
    std::set<std::int32_t> taken_;
};

RasRank read_rank(const Json& item, Places& places, std::string& wrong) {
    Members from{item, wrong};
    RasRank out;
    out.rank = places.take(from);
    out.host = from.text("host");
    out.pid = from.integer("pid", -1, INT32_MAX);
    if (const Json* status = from.find("status")) {
        Members of{*status, wrong};
        const std::int64_t init = of.integer("init_state", INT32_MIN, INT32_MAX);
        const std::int64_t error = of.integer("async_error", INT32_MIN, INT32_MAX);
        const bool leaving = of.boolean("finalize_called");
        const bool destroyed = of.boolean("destroy_flag");
        const bool aborted = of.boolean("abort_flag");
        out.in_use = init == kNcclSuccess && (error == kNcclSuccess || error == kNcclInProgress) &&
                     !leaving && !destroyed && !aborted;
    }
    const Json* counts = from.find("collective_counts");
    if (counts != nullptr && (!counts->is_object() || counts->size() > kOperations)) {
        from.note("collective_counts");
    } else if (counts != nullptr) {
        Members of{*counts, wrong};
        for (const auto& [name, value] : counts->items()) {
            out.launched[printable(std::string_view{name}.substr(0, kNameBytes))] =
                of.integer(name.c_str(), 0, kLaunches);
        }
    }
    return out;
}

RasMissing read_missing(const Json& item, Places& places, std::string& wrong) {
    Members from{item, wrong};
    RasMissing out;
    out.rank = places.take(from);
    out.host = from.text("host");
    out.pid = from.integer("pid", -1, INT32_MAX);
    if (const Json* status = from.find("status")) {
        Members of{*status, wrong};
        out.unresponsive = of.boolean("unresponsive");
        out.dead = of.boolean("considered_dead");
    }
    return out;
}

RasCommunicator read_communicator(const Json& item, std::string& wrong) {
    Members from{item, wrong};
    RasCommunicator out;
    out.name = from.text("hash");
    out.key = out.name + "/" + from.text("secondary_hash");
    out.size = static_cast<std::int32_t>(from.integer("size", 1, limits::kRanks));
    Places places{out.size, wrong};
    for (const Json& rank : from.list("ranks")) {
        out.ranks.push_back(read_rank(rank, places, wrong));
    }
    for (const Json& rank : from.list("missing_ranks")) {
        out.missing.push_back(read_missing(rank, places, wrong));
    }
    return out;
}

// NCCL 2.28.7 to 2.28.9 leave out a comma, where a rank is missing (jsonWriteMissingRank): between
// its nvml_dev and its status.
std::string with_commas(std::string_view text) {
    constexpr std::string_view kStatus = "\n          \"status\": {";
    std::string out;
    out.reserve(text.size() + text.size() / kStatus.size());
    for (std::size_t at = text.find(kStatus); at != std::string_view::npos;
         at = text.find(kStatus)) {
        out += text.substr(0, at);
        out += at > 0 && text[at - 1] >= '0' && text[at - 1] <= '9' ? "," : "";
        out += kStatus;
        text.remove_prefix(at + kStatus.size());
    }
    return out += text;
}

}  // namespace

std::int64_t RasRank::total() const {
    return std::accumulate(launched.begin(), launched.end(), std::int64_t{0},
                           [](std::int64_t sum, const auto& one) { return sum + one.second; });
}

Result<RasStatus> parse_ras_status(std::string_view text) {
    auto json = parse_json(text);
    if (!json) {
        json = parse_json(with_commas(text));
    }
    if (!json) {
        return fail(json.error());
    }
    std::string wrong;
    Members from{*json, wrong};
    RasStatus out;
    out.version = from.text("nccl_version");
    std::set<std::string> keys;
    for (const Json& item : from.list("communicators")) {
        out.communicators.push_back(read_communicator(item, wrong));
        if (!keys.insert(out.communicators.back().key).second && wrong.empty()) {
            wrong = "a communicator that is there twice";
        }
    }
    if (!wrong.empty()) {
        return fail(Errc::invalid, "not as NCCL's RAS is known to say it: " + wrong);
    }
    return out;
}

}  // namespace lockstep
