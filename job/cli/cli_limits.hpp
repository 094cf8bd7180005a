// What the command line lets people run into, each with its reason: how long it waits for others,
// and how much it reads and shows. What lockstepd refuses is in job/base/limits.hpp.
#pragma once

#include "job/base/limits.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep::limits {

// --- how long others are waited for --------------------------------------------------------
// A lockstepd that was started for the command says where it listens: a store of 100,000 jobs takes
// 1 s.
inline constexpr auto kDaemonStartPatience = std::chrono::seconds{60};
// scontrol about the nodes of Slurm; then lockstepd takes its first address for them.
inline constexpr auto kScontrolPatience = std::chrono::seconds{5};
// `follow` and `top` without any answer, then they give up: a lockstepd that is started again, also
// on another machine, is given time to come back.
inline constexpr auto kFollowPatience = std::chrono::minutes{10};
// One answer to `top`, which has a screen to draw meanwhile.
inline constexpr auto kTopAnswerPatience = std::chrono::seconds{10};
// `login`: an address that says nothing is mistyped.
inline constexpr auto kLoginPatience = std::chrono::seconds{10};
// munge's own program signs in milliseconds, unless its daemon hangs.
inline constexpr auto kMungePatience = std::chrono::seconds{20};
// One command of git for --snapshot: a large tree on a distant file system.
inline constexpr auto kGitPatience = std::chrono::seconds{60};
// `rm`: agents that are still leaving have seconds to do so.
inline constexpr auto kRemovalPatience = std::chrono::seconds{30};
// `du`: measures a job at a time, the newest first, as many as this allows. Thousands; then it says
// how many are left, and --all goes on.
inline constexpr auto kDiskUsePatience = std::chrono::seconds{60};
// `evidence --now`: twice what a look may take.
inline constexpr auto kEvidenceNowPatience = std::chrono::seconds{25};
// `export`: a lockstepd that starts again reads its store first.
inline constexpr auto kSamplesPatience = std::chrono::seconds{30};
// After Ctrl-C, for a second one, which cancels the job.
inline constexpr auto kSecondInterrupt = std::chrono::seconds{2};

// --- what is read --------------------------------------------------------------------------
// Of a file of settings, an address, a token's or a certificate's: more is another file.
inline constexpr std::size_t kSettingBytes = 64U << 10U;
// Texts and pointers of a YAML document together. One of kBodyBytes comes nowhere near it, unless
// aliases repeat a long text, or a long name stands before many values.
inline constexpr std::size_t kYamlReadBytes = 64 * kBodyBytes;
// The first and the last number of a sweep's range, above and below zero: nobody counts further,
// and no step beyond overflows.
inline constexpr std::int64_t kSweepRangeNumber = 1'000'000'000'000;
// `logs` of several ranks in the order of time: a megabyte each at most.
inline constexpr std::size_t kMergedLogRanks = 256;

// --- what is shown -------------------------------------------------------------------------
// Of an answer that is not lockstepd's, in an error message: a sentence or an address.
inline constexpr std::size_t kAnswerWordsShown = 200;
inline constexpr std::size_t kJobAnomaliesShown = 5;   // `show`: the first; `events` has all
inline constexpr std::size_t kJobEvidenceShown = 8;    // `show`: ranks; `evidence` has all
inline constexpr std::size_t kSweepMeasuresShown = 8;  // columns of a sweep's results
inline constexpr std::size_t kTopAnomaliesKept = 256;  // `top`: the newest; a screen has 50 lines
// Without a step, then views say how a loss is named: until the framework is loaded and the model
// compiled no script prints one.
inline constexpr double kLossSilenceSeconds = 60;

}  // namespace lockstep::limits
