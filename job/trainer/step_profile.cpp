#include "job/trainer/step_profile.hpp"

#include "job/base/files.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategy.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <ATen/record_function.h>
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using ProfileClock = std::chrono::steady_clock;

constexpr int kCompression = 5;

thread_local Recording* recording_here = nullptr;

double monotonic_now() {
    return std::chrono::duration<double>(ProfileClock::now().time_since_epoch()).count();
}

std::string own_name(std::string_view prefix, std::string_view rest = "") {
    return std::string{prefix} + std::to_string(::getpid()) + std::string{rest};
}

}  // namespace

class Recording {
  public:
    Recording(std::string id, double seconds)
        : id_(std::move(id)),
          begun_(ProfileClock::now()),
          end_(begun_ + std::chrono::duration_cast<ProfileClock::duration>(
                            std::chrono::duration<double>(seconds))),
          step_begun_(begun_),
          wall_(std::chrono::duration<double, std::micro>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count()) {
        recording_here = this;
        // Of this thread: callbacks of all threads may only be set while no other one computes.
        handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(
            [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
                if (recording_here != nullptr) {
                    recording_here->enter(function.name());
                }
                return nullptr;
            },
            [](const at::RecordFunction&, at::ObserverContext*) {
                if (recording_here != nullptr) {
                    recording_here->leave();
                }
            }));
    }
    ~Recording() { stop(); }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    void stop() {
        if (recording_here == this) {
            at::removeCallback(handle_);
            recording_here = nullptr;
        }
    }

    void enter(std::string_view name) {
        open_.push_back({number_of(name), ProfileClock::now(), {}});
    }
    void leave() {
        if (open_.empty()) {
            return;  // begun before the recording
        }
        const Open one = open_.back();
        open_.pop_back();
        const auto took = ProfileClock::now() - one.begun;
        if (!open_.empty()) {
            open_.back().below += took;
        }
        Sum& sum = sums_[one.name];
        ++sum.calls;
        sum.total += took;
        sum.own += took - one.below;
        if (spans_.size() < limits::kStepProfileSpans) {
            spans_.push_back({one.name, one.begun, took});
        }
    }
    void add_step(const StepResult& result) {
        const auto now = ProfileClock::now();
        steps_.push_back({result.step, step_begun_, now - step_begun_});
        step_begun_ = now;
        const double whole = std::chrono::duration<double>(steps_.back().took).count();
        const std::array parts{result.data_wait_seconds, result.forward_seconds,
                               result.backward_seconds, result.comm_wait_seconds,
                               result.optimizer_seconds};
        double rest = whole;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            phases_[i] += parts[i];
            rest -= parts[i];
        }
        phases_.back() += std::max(rest, 0.0);
        whole_ += whole;
    }
    bool is_over() const {
        return ProfileClock::now() >= end_ || spans_.size() >= limits::kStepProfileSpans;
    }

    const std::string& id() const { return id_; }
    std::size_t steps() const { return steps_.size(); }
    std::string trace() const;
    std::string table() const;

  private:
    struct Open {
        std::size_t name = 0;
        ProfileClock::time_point begun;
        ProfileClock::duration below{};  // in spans within it
    };
    struct Span {
        std::size_t name = 0;
        ProfileClock::time_point begun;
        ProfileClock::duration took{};
    };
    struct StepSpan {
        std::int64_t step = 0;
        ProfileClock::time_point begun;
        ProfileClock::duration took{};
    };
    struct Sum {
        std::int64_t calls = 0;
        ProfileClock::duration total{};
        ProfileClock::duration own{};
    };

    // LibTorch's names may be of a moment.
    std::size_t number_of(std::string_view name) {
        const auto found = numbers_.find(name);
        if (found != numbers_.end()) {
            return found->second;
        }
        names_.emplace_back(name);
        sums_.emplace_back();
        return numbers_.emplace(names_.back(), names_.size() - 1).first->second;
    }
    void add_event(std::string& out, std::string_view name, std::string_view kind,
                   ProfileClock::time_point begun, ProfileClock::duration took) const;

    std::string id_;
    ProfileClock::time_point begun_;
    ProfileClock::time_point end_;
    ProfileClock::time_point step_begun_;
    double wall_;  // of begun_: Unix time, µs
    at::CallbackHandle handle_{};
    std::map<std::string, std::size_t, std::less<>> numbers_;
    std::vector<std::string> names_;
    std::vector<Sum> sums_;  // by name
    std::vector<Open> open_;
    std::vector<Span> spans_;
    std::vector<StepSpan> steps_;
    std::array<double, 6> phases_{};  // seconds, of all steps; the last one is the rest
    double whole_ = 0.0;
};

void Recording::add_event(std::string& out, std::string_view name, std::string_view kind,
                          ProfileClock::time_point begun, ProfileClock::duration took) const {
    const std::chrono::duration<double, std::micro> from = begun - begun_;
    const std::chrono::duration<double, std::micro> length = took;
    std::array<char, 160> numbers{};
    std::snprintf(numbers.data(), numbers.size(),
                  R"(,"ph":"X","pid":%d,"tid":1,"ts":%.3f,"dur":%.3f})",
                  static_cast<int>(::getpid()), wall_ + from.count(), length.count());
    out += out.back() == '[' ? "\n" : ",\n";
    out += R"({"name":)" + dump_json(Json(std::string{name})) + R"(,"cat":")" + std::string{kind} +
           '"' + numbers.data();
}

// Source: Trace Event Format, complete events: docs.google.com, "Trace Event Format", times in µs.
std::string Recording::trace() const {
    std::string out = R"({"displayTimeUnit":"ms","traceEvents":[)";
    for (const StepSpan& step : steps_) {
        add_event(out, "step " + std::to_string(step.step), "step", step.begun, step.took);
    }
    for (const Span& span : spans_) {
        add_event(out, names_[span.name], "operation", span.begun, span.took);
    }
    return out + "\n]}\n";
}

std::string Recording::table() const {
    constexpr std::array kPhases{"data wait", "forward",   "backward",
                                 "comm wait", "optimizer", "the rest"};
    const auto steps = static_cast<double>(std::max<std::size_t>(steps_.size(), 1));
    std::array<char, 200> line{};
    std::string out = std::to_string(steps_.size()) + " steps\n\n";
    std::snprintf(line.data(), line.size(), "%-12s %12s %7s\n", "phase", "ms of a step", "share");
    out += line.data();
    for (std::size_t i = 0; i < kPhases.size(); ++i) {
        std::snprintf(line.data(), line.size(), "%-12s %12.3f %6.1f%%\n", kPhases[i],
                      1e3 * phases_[i] / steps, whole_ > 0.0 ? 100.0 * phases_[i] / whole_ : 0.0);
        out += line.data();
    }
    std::vector<std::size_t> order(names_.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
        order[i] = i;
    }
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return sums_[a].own > sums_[b].own; });
    std::snprintf(line.data(), line.size(), "\n%12s %12s %9s  %s\n", "ms itself", "with its own",
                  "calls", "operation");
    out += line.data();
    const auto milliseconds = [](ProfileClock::duration time) {
        return std::chrono::duration<double, std::milli>(time).count();
    };
    for (std::size_t i = 0; i < std::min(order.size(), limits::kStepProfileRows); ++i) {
        const Sum& sum = sums_[order[i]];
        std::snprintf(line.data(), line.size(), "%12.3f %12.3f %9lld  %.120s\n",
                      milliseconds(sum.own), milliseconds(sum.total),
                      static_cast<long long>(sum.calls), names_[order[i]].c_str());
        out += line.data();
    }
    return out;
}

namespace {

// Whole or not at all: `write` fills a draft, and says whether all of it is there. "" = it is.
std::string write_profile(const std::filesystem::path& path,
                          const std::function<bool(const char* draft)>& write) {
    const std::filesystem::path draft = path.string() + ".new";
    std::error_code ec;
    if (write(draft.c_str())) {
        std::filesystem::rename(draft, path, ec);
        if (!ec) {
            return "";
        }
    }
    std::filesystem::remove(draft, ec);
    return path.filename().string() + " could not be written: is the disk full?";
}

std::string write_text(const std::filesystem::path& path, const std::string& text) {
    return write_profile(path, [&](const char* draft) {
        std::FILE* file = std::fopen(draft, "we");
        const bool whole =
            file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
        return (file == nullptr || std::fclose(file) == 0) && whole;
    });
}

std::string write_packed(const std::filesystem::path& path, const std::string& text) {
    return write_profile(path, [&](const char* draft) {
        const gzFile file = ::gzopen(draft, ("wbe" + std::to_string(kCompression)).c_str());
        const bool whole =
            file != nullptr && ::gzwrite(file, text.data(), static_cast<unsigned>(text.size())) ==
                                   static_cast<int>(text.size());
        return (file == nullptr || ::gzclose(file) == Z_OK) && whole;
    });
}

// Who asks for a profile never ends a training: nothing is thrown.
void answer_profile(const Recording& recording, const std::filesystem::path& base) noexcept try {
    Json done = Json::object();
    done["id"] = recording.id();
    done["steps"] = static_cast<std::int64_t>(recording.steps());
    done["files"] = Json::array();
    done["missing"] = Json::array();
    const auto take = [&](const char* name, const std::string& why) {
        if (why.empty()) {
            done["files"].push_back(name);
        } else {
            done["missing"].push_back({{"what", name}, {"why", why}});
        }
    };
    if (recording.steps() == 0) {
        done["missing"].push_back({{"what", "all"}, {"why", "the training ended before a step"}});
    } else {
        take("trace.json.gz", write_packed(base.string() + "trace.json.gz", recording.trace()));
        take("operations.txt", write_text(base.string() + "operations.txt", recording.table()));
    }
    if (const std::string why = write_text(base.string() + "done", dump_json(done)); !why.empty()) {
        log::warn("a profile could not be answered", {{"reason", why}});
    }
} catch (const std::exception& error) {
    log::warn("a profile could not be answered", {{"reason", error.what()}});
}

}  // namespace

std::unique_ptr<StepProfile> StepProfile::offer(const std::filesystem::path& socket) {
    std::filesystem::path folder = socket.parent_path();
    const std::filesystem::path file = folder / own_name("spans.");
    UniqueFd offered{::open(file.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!offered) {
        return nullptr;
    }
    return std::unique_ptr<StepProfile>(new StepProfile(std::move(folder), std::move(offered)));
}

StepProfile::StepProfile(std::filesystem::path folder, UniqueFd offered)
    : folder_(std::move(folder)), offered_(std::move(offered)) {}

StepProfile::~StepProfile() {
    if (recording_) {
        finish();
    }
    if (writer_.joinable()) {
        writer_.join();
    }
    std::error_code ignored;
    std::filesystem::remove(folder_ / own_name("spans."), ignored);
}

std::filesystem::path StepProfile::path(std::string_view name) const {
    return folder_ / own_name("profile.", "." + std::string{name});
}

void StepProfile::step_ended(const StepResult& result) {
    if (recording_) {
        recording_->add_step(result);
        if (recording_->is_over()) {
            finish();
        }
    }
    if (!recording_ && stop_signal::take_profile_request()) {
        begin();
    }
}

void StepProfile::begin() {
    const auto text = read_plain_file(path("ask"), limits::kProfileAnswerBytes);
    const auto asked = text ? parse_json(*text) : Result<Json>{fail(Errc::not_found, "")};
    if (!asked || !asked->is_object() || !asked->contains("id") || !(*asked)["id"].is_string() ||
        !asked->contains("seconds") || !(*asked)["seconds"].is_number() ||
        !asked->contains("until") || !(*asked)["until"].is_number()) {
        return;
    }
    const double seconds = std::clamp((*asked)["seconds"].get<double>(), 0.1, 60.0);
    if (monotonic_now() + seconds > (*asked)["until"].get<double>()) {
        return;  // the step lasted so long that nobody waits for it any more
    }
    recording_ = std::make_unique<Recording>((*asked)["id"].get<std::string>(), seconds);
}

void StepProfile::finish() {
    recording_->stop();
    if (writer_.joinable()) {
        writer_.join();
    }
    const std::filesystem::path base = path("");
    const std::shared_ptr<Recording> recording = std::move(recording_);
    try {
        writer_ = std::thread{[recording, base] { answer_profile(*recording, base); }};
    } catch (const std::system_error&) {  // no further thread is allowed
        answer_profile(*recording, base);
    }
}

ProfileSpan::ProfileSpan(std::string_view name) : recording_(recording_here) {
    if (recording_ != nullptr) {
        recording_->enter(name);
    }
}

// The recording never ends within a span: both are of the same thread, and it ends between steps.
ProfileSpan::~ProfileSpan() {
    if (recording_ != nullptr) {
        recording_->leave();
    }
}

}  // namespace lockstep
