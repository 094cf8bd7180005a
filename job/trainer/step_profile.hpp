// What this rank does for some seconds, because `lockstep profile` or `python3 -m lockstep.profile`
// asks: every operation of LibTorch on the training thread, every layer of the network, and where
// each step's time goes.
//
// Who asks finds spans.<pid> beside the report socket, writes profile.<pid>.ask there, {"id",
// "seconds", "until" (CLOCK_MONOTONIC)}, and sends SIGURG; the answer is profile.<pid>.done, as of
// a Python rank (job/rank/python/hooks/_lockstep_profile.py,
// job/agent/diagnostics/rank_profiles.hpp), with trace.json.gz, whole steps for Perfetto and
// chrome://tracing, and operations.txt.
//
// Nothing is recorded, and next to nothing spent, before somebody asks. On a GPU the times are
// those of enqueueing, not of the kernels. Training thread; files are written by another one.
#pragma once

#include "job/base/unique_fd.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <thread>

namespace lockstep {

struct StepResult;
class Recording;

class StepProfile {
  public:
    // `socket`: the report socket's path. nullptr: its folder takes no file; nobody can ask then.
    static std::unique_ptr<StepProfile> offer(const std::filesystem::path& socket);
    // A recording under way is answered with the steps that there are.
    ~StepProfile();
    StepProfile(const StepProfile&) = delete;
    StepProfile& operator=(const StepProfile&) = delete;

    // Begins what was asked for meanwhile, or ends it when its time is over: whole steps only.
    void step_ended(const StepResult& result);

  private:
    StepProfile(std::filesystem::path folder, UniqueFd offered);

    void begin();
    void finish();
    std::filesystem::path path(std::string_view name) const;

    std::filesystem::path folder_;
    UniqueFd offered_;  // spans.<pid>, held open: its sign that it is this process's
    std::unique_ptr<Recording> recording_;
    std::thread writer_;
};

// A part of a step, from here to the end of its scope, in the recording of this thread if there is
// one. `name` is copied only then.
class ProfileSpan {
  public:
    explicit ProfileSpan(std::string_view name);
    ~ProfileSpan();
    ProfileSpan(const ProfileSpan&) = delete;
    ProfileSpan& operator=(const ProfileSpan&) = delete;

  private:
    Recording* recording_;
};

}  // namespace lockstep
