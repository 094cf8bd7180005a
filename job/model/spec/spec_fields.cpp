#include "job/model/spec/spec_fields.hpp"

#include "job/base/ids.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

// TERM and INT end a process that does not catch them; NCCL may catch USR1 (submitit found so),
// hence USR2 by default.
constexpr std::array<std::string_view, 5> kSignals{"USR2", "USR1", "TERM", "INT", "HUP"};

// An empty list or object asks for nothing and is accepted.
void refuse_if_filled(ObjectReader& in, std::string_view key, const char* why) {
    const Json* value = in.raw(key);
    if (value == nullptr) {
        return;
    }
    if (!value->is_array() && !value->is_object()) {
        in.error(key, "has the wrong type");
    } else if (!value->empty()) {
        in.error(key, why);
    }
}

}  // namespace

void read_map(ObjectReader& in, std::string_view key, std::map<std::string, std::string>& target,
              const MapRule& rule, std::vector<FieldError>& errors) {
    const Json* object = in.raw(key);
    if (object == nullptr) {
        return;
    }
    if (!object->is_object()) {
        in.error(key, "must be an object");
        return;
    }
    if (object->size() > rule.most) {
        in.error(key, "has more than " + std::to_string(rule.most) + " entries");
        return;
    }
    ObjectReader map{*object, in.pointer(key), errors};
    for (const auto& [name, value] : object->items()) {
        if (const std::string_view wrong = rule.wrong_name(name); !wrong.empty()) {
            map.error(name.substr(0, limits::kTextBytes), std::string{wrong});
        } else {
            map.string(name, target[name], rule.bytes);
        }
    }
}

void read_checkpoint(const Json& json, const std::string& pointer, CheckpointSpec& out,
                     std::vector<FieldError>& errors) {
    ObjectReader in{json, pointer, errors};
    in.string("directory", out.directory, limits::kPathBytes);
    if (!out.directory.empty() && out.directory.front() != '/') {
        in.error("directory", "must be an absolute path");
    }
    std::size_t signal = 0;
    in.word("signal", signal, {kSignals.begin(), kSignals.end()});
    out.signal = kSignals[signal];
    out.signal_named = in.has("signal");
    in.integer("seconds_before_timeout", out.seconds_before_timeout, 0,
               limits::kSecondsBeforeTimeout);
    in.finish();
}

Json to_json(const CheckpointSpec& checkpoint) {
    Json out = Json::object();
    if (!checkpoint.directory.empty()) {
        out["directory"] = checkpoint.directory;
    }
    if (checkpoint.signal_named) {
        out["signal"] = checkpoint.signal;
    }
    if (checkpoint.seconds_before_timeout > 0) {
        out["seconds_before_timeout"] = checkpoint.seconds_before_timeout;
    }
    return out;
}

void read_after(ObjectReader& in, std::vector<std::string>& out, std::vector<FieldError>& errors) {
    in.strings("after", out, limits::kAfter, limits::kTextBytes);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::string pointer = in.pointer("after") + "/" + std::to_string(i);
        if (!is_job_id(out[i])) {
            errors.push_back({pointer, "is not the id of a job: ls-…"});
        } else if (std::find(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(i), out[i]) !=
                   out.begin() + static_cast<std::ptrdiff_t>(i)) {
            errors.push_back({pointer, "is there already"});
        }
    }
}

void refuse_later_fields(ObjectReader& in) {
    refuse_if_filled(in, "sweep", "is several jobs: only where a job is submitted or rendered");
}

}  // namespace lockstep
