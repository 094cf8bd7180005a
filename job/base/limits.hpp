// size: every cap there is, with its reason
// Every cap that users, their clients, agents or ranks can run into, and every one by which memory
// is bounded, each with its reason: sizes of requests and documents, counts, patience between
// programs. What only one file is about (a buffer, a retry, a poll) is a constant there, and
// tests/lint/caps.py knows each of them by name.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep::limits {

// --- what a request may hold ---------------------------------------------------------------
// A spec with 256 environment entries fits 10×.
inline constexpr std::size_t kBodyBytes = 1U << 20U;
inline constexpr std::size_t kHeaderBytes = 8U << 10U;  // browsers send < 4 KiB
inline constexpr std::size_t kHeaderFields = 64;        // browsers send about 20
inline constexpr std::size_t kTargetBytes = 2U << 10U;  // longest honest query is < 500 bytes
inline constexpr std::size_t kJsonDepth = 32;   // nlohmann copies recursively: 1 frame a level
inline constexpr std::size_t kJsonKeys = 1024;  // in one object; 256 environment entries fit
// Values in one document: < 10 MiB of nlohmann::json.
inline constexpr std::size_t kJsonNodes = 100'000;
inline constexpr auto kHeaderTimeout = std::chrono::seconds{5};  // slowloris
inline constexpr auto kBodyTimeout = std::chrono::seconds{10};
inline constexpr auto kWriteTimeout = std::chrono::seconds{10};  // a reader that stopped reading
inline constexpr auto kIdleTimeout = std::chrono::seconds{30};   // keep-alive
// Connections of each listener, of 20,000 descriptors; the rest is for agents that have called in.
inline constexpr std::size_t kConnections = 4096;
inline constexpr std::size_t kAgentConnections = 3072;   // --agent-listen: until they are upgraded
inline constexpr std::size_t kMetricsConnections = 256;  // --metrics-listen
// Of the first, from one address beyond loopback, with a credential or without (a proxy or a NAT
// stands for many people, and for agents where they have no listener of their own), and those that
// only this machine's own may take.
inline constexpr std::size_t kConnectionsOfAddress = 1024;
inline constexpr std::size_t kConnectionsForUs = 64;
// Of these, from one address, without a credential: then the one that has waited longest gives way
// to a new one, unless it came less than this ago. A node of a site may stand for all of them
// (NAT).
inline constexpr std::size_t kStrangers = 1024;
inline constexpr auto kStrangerPatience = std::chrono::seconds{1};
// TLS handshakes at a time, in all and of one address, about 1 ms each; whoever takes longer than a
// turn waits for the peer's answer, and does so outside of this number.
inline constexpr std::size_t kHandshakes = 256;
inline constexpr std::size_t kHandshakesOfAddress = 32;
inline constexpr auto kHandshakeTurn = std::chrono::milliseconds{500};
// Bodies of requests in memory, of all connections: 64 of the largest.
inline constexpr std::size_t kBodiesInTransit = 64U << 20U;
// Where no body belongs: a client that always sends one may send {}.
inline constexpr std::size_t kNoBodyBytes = 2;
inline constexpr std::size_t kStreams = 256;  // SSE and log followers: one timer each
// Of these, of one user who is no admin; a browser has one, whatever its tabs. Some are for admins.
inline constexpr std::size_t kStreamsOfUser = 64;
inline constexpr std::size_t kStreamsOfAdmins = 32;
inline constexpr std::size_t kStreamQueue = 1024;  // messages one SSE client may lag behind
// Snapshots and steps that wait for one SSE client: the newest stay.
inline constexpr std::size_t kStreamLatestBytes = 1U << 20U;
inline constexpr std::size_t kTopics = 256;  // of one stream, for all tabs of a browser
inline constexpr std::size_t kTopicsBytes = 4096;
// Under every proxy's idle timeout.
inline constexpr auto kStreamHeartbeat = std::chrono::seconds{15};
// Of a refused body, read so that the client hears why before the connection ends.
inline constexpr std::size_t kLingerBytes = 16U << 20U;
// audit.log: how much text may wait for the disk, beyond which lines are lost, and counted; refused
// tokens that are written at once, then one a second, however many there are; the same of requests
// of known users that change nothing, because they are wrong.
inline constexpr std::size_t kAuditWaitingBytes = 8U << 20U;
inline constexpr int kAuditRefusalsAtOnce = 20;
inline constexpr int kAuditFailuresAtOnce = 200;
inline constexpr std::size_t kQueryParameters = 64;       // no route has 20
inline constexpr std::size_t kBearerBytes = 512;          // of lockstepd: less than 100
inline constexpr std::size_t kIdempotencyKeyBytes = 255;  // an id or a hash
// Of a job's restarts and checkpoints, the newest: a command is repeated soon, or never. They are
// copied with the job: 10 kB at most.
inline constexpr std::size_t kCommandKeys = 32;
// Keys under which a command is asked for that is on its way already: each is an event.
inline constexpr std::size_t kCommandKeysJoining = 8;
inline constexpr std::size_t kCursorBytes = 256;      // of lockstepd: an id in base 64, or less
inline constexpr std::size_t kNodeCursorBytes = 512;  // a host's name in base 64
// Sweeps of one user that wait for their turn: each is as much work as its jobs.
inline constexpr std::size_t kSweepsWaiting = 4;
inline constexpr std::int64_t kLogTailLines = 100'000;  // the answer has 1 MiB at most anyway
inline constexpr std::int64_t kLogFindings = 500;       // of one search, in one answer
inline constexpr auto kLogSearchPatience = std::chrono::milliseconds{5000};  // of one search
// Reads of one folder at a time: one that hangs counts for as long as it does.
inline constexpr std::size_t kReadsOfAFolder = 4;
// Of a job's folder, when what it takes is asked for: half of what a folder's answer may take.
inline constexpr auto kCountPatience = std::chrono::seconds{5};
inline constexpr std::int64_t kFilesCounted = 200'000;
inline constexpr std::size_t kSignInBytes = 4096;           // a code or a token
inline constexpr std::size_t kSlurmTokenBytes = 8U << 10U;  // as a header may have
inline constexpr std::int64_t kPageSessionSeconds = 7 * 86'400LL;
inline constexpr std::size_t kSessionsOfUser = 50;  // browsers; then the oldest is signed out
inline constexpr std::int64_t kSignInCodeSeconds = 60;
inline constexpr std::size_t kSignInCodes = 10'000;  // that are valid
// So that one user cannot keep others from signing in.
inline constexpr std::ptrdiff_t kSignInCodesOfUser = 100;

// --- what a job may ask ----------------------------------------------------------------------
inline constexpr std::int32_t kNodes = 16'384;
inline constexpr std::int32_t kSpares = 1024;
inline constexpr std::int32_t kRestarts = 1000;  // each is a handful of events
inline constexpr std::int32_t kAttempts = 100;   // each is an allocation
inline constexpr std::int32_t kGrowAfterSeconds = 86'400;
inline constexpr std::size_t kWarmModules = 32;       // imported one after another
inline constexpr std::int32_t kHangSeconds = 86'400;  // a day without a step
inline constexpr std::int32_t kRanks = 131'072;
inline constexpr std::int32_t kRanksPerNode = 1024;
// Ranks that are told every other's address: TF_CONFIG and its like are one variable, and Linux
// gives one 128 KiB; "255.255.255.255:65535" with quotes and comma is 24 bytes.
inline constexpr std::int32_t kEndpoints = 4096;
inline constexpr std::size_t kRoles = 16;
inline constexpr std::int32_t kCpusPerRank = 4096;
inline constexpr std::int32_t kGpusPerNode = 64;
inline constexpr std::int32_t kRanksPerGpu = 64;
inline constexpr std::int64_t kMemoryMbPerNode = 64'000'000;  // 64 TB
inline constexpr std::size_t kArguments = 4096;
inline constexpr std::size_t kArgumentBytes = 128U << 10U;  // MAX_ARG_STRLEN of Linux
inline constexpr std::size_t kEnvironment = 256;
inline constexpr std::size_t kEnvironmentBytes = 64U << 10U;  // one value
// What a client records of its caller: a shell on a cluster with modules has 100-300 variables in
// 10-40 KiB. Every agent of the job gets it, and it must fit Linux's 2 MiB for a new process.
inline constexpr std::size_t kRecordedEnvironment = 1000;
inline constexpr std::size_t kRecordedEnvironmentBytes = 256U << 10U;
inline constexpr std::size_t kSetupBytes = 16U << 10U;       // shell text; a longer one is a file
inline constexpr std::size_t kSnapshotBytes = 2048U << 20U;  // what git tracks; data sets are not
inline constexpr std::size_t kLabels = 32;
inline constexpr std::size_t kNotifyTargets = 16;  // people and chat rooms, not all of a company
// A webhook's URL with its secret has less than 300; receivers take 2,000 and more.
inline constexpr std::size_t kNotifyTargetBytes = 2048;
// Secrets: their names become files, their values variables, which Linux bounds by 128 KiB each and
// 2 MiB in all. A service account's key has 2.4 KiB, a kubeconfig 10.
inline constexpr std::size_t kSecretNameBytes = 128;
inline constexpr std::size_t kSecretBytes = 32U << 10U;
// Of the request that sets one: each byte may be \u00xx in JSON.
inline constexpr std::size_t kSecretBodyBytes = 6 * kSecretBytes + 1024;
inline constexpr std::size_t kSecretsOfJob = 32;
inline constexpr std::size_t kSecretsOfUser = 100;
inline constexpr std::size_t kSecretBytesOfUser = 256U << 10U;
inline constexpr std::size_t kSecretBytesOfAll = 64U << 20U;  // lockstepd has them in memory
inline constexpr std::size_t kSweepParameters = 16;
inline constexpr std::size_t kSweepPoints = 1000;       // jobs of one sweep
inline constexpr std::size_t kSweepBytes = 64U << 20U;  // document × jobs
inline constexpr std::size_t kMounts = 64;              // of a container
inline constexpr std::size_t kAfter = 64;               // jobs that one waits for
inline constexpr std::size_t kTextBytes = 256;          // label values, names of other things
inline constexpr std::size_t kPathBytes = 4096;         // PATH_MAX
inline constexpr std::size_t kPatternBytes = 1024;      // capture.loss
inline constexpr std::size_t kHostListBytes = 4096;     // 400 nodes one by one; a range is 10 bytes
inline constexpr std::int32_t kSecondsBeforeTimeout = 65'535;        // sbatch's own limit
inline constexpr std::int64_t kTimeLimitSeconds = 3'650 * 86'400LL;  // ten years; fits Slurm's

// --- what the daemon keeps -------------------------------------------------------------------
inline constexpr std::size_t kPageDefault = 50;
inline constexpr std::size_t kPage = 1000;  // items in one answer
// A search reads jobs in turns, since nothing is written meanwhile (1,000: 7 ms), and ends an
// answer after so many, from where the next request goes on.
inline constexpr std::size_t kSearchTurn = 500;
inline constexpr std::size_t kSearchedJobs = 20'000;
inline constexpr std::size_t kSearchWords = 16;
inline constexpr std::size_t kActiveJobs = 100'000;  // not finished; 3.3 KiB each (measured)
inline constexpr std::size_t kUserJobs = 10'000;     // of these, of one user: --user-jobs
// Of one user a minute, and at once: --user-submissions. Ten times what a shell's loop does.
inline constexpr std::size_t kUserSubmissions = 6'000;
inline constexpr std::size_t kFinishedJobsCached = 1024;
inline constexpr std::size_t kRecentPoints = 4096;    // raw points per rank and metric in memory
inline constexpr std::size_t kSeriesJobsCached = 64;  // finished jobs whose series stay in memory
inline constexpr std::size_t kSeriesPoints = 4000;    // per rank in one answer
inline constexpr std::size_t kSeriesRanks = 256;      // ranks in one answer
// Of one user, about history: each is read from the disk.
inline constexpr std::size_t kQuestionsWaiting = 256;
inline constexpr std::size_t kRecentSteps = 32;  // of a job, exact, of all ranks
// Of one job: a rank has one, but for what recovery brings.
inline constexpr std::size_t kGpusOfJob = kRanks;
inline constexpr std::size_t kMetricsAsked = 16;         // in one question
inline constexpr std::int64_t kWorstRanks = 64;          // that are answered with their points
inline constexpr std::size_t kPointsOfMetric = 65'536;   // in one answer: 3 MB, 30 ms
inline constexpr std::size_t kPointsTogether = 262'144;  // of all metrics of one answer
// Samples in one answer: 3 MiB of JSON. One block's chunk has about as many rows.
inline constexpr std::size_t kSamplesPage = 65'536;
inline constexpr std::size_t kHeatmapCells = 8U << 20U;  // 10,000 ranks × 800 columns and a little
// Ranks × columns of one answer with bands: 64 MiB. More ranks get fewer columns.
inline constexpr std::size_t kBandCells = 16U << 20U;
// What one job's history may take in memory: at this size each rank keeps fewer, coarser rows, but
// so many at least. 4 ranks × 12 metrics at full length are 5 MiB.
inline constexpr std::size_t kJobSeriesBytes = 64U << 20U;
inline constexpr std::size_t kRowsMin = 16;
inline constexpr std::size_t kNonfiniteKept = 64;  // occurrences per rank and metric
// Of a job's generations, the newest: agents say their numbers.
inline constexpr std::size_t kGenerationsKept = 4096;
// When a job's rows become chunks: the longer, the better they pack; the shorter, the less memory
// and the less to read after a restart. 10,000 ranks with 20 metrics at 1 Hz reach it in 25 s.
inline constexpr std::size_t kOpenSamples = 5'000'000;
inline constexpr std::size_t kOpenBlockRows = 65'536;
// Of all blocks together: a question copies what is open of its metric on the control thread, 30
// bytes a row. 10,000 ranks with one metric at 10 Hz would have reached 490 rows each, 200 ms.
inline constexpr std::size_t kOpenRows = 250'000;
inline constexpr double kOpenSeconds = 600;
// Values read back for one job at a start: enough for what is shown at once; the rest is answered
// from the chunks.
inline constexpr std::int64_t kRestoreSamples = 2'000'000;
inline constexpr double kGpuSamplesPerSecond = 65'536;  // kept of a job's GPUs: fewer looks of more
inline constexpr std::size_t kRanksOfGpu = 16;          // named with a GPU
// A look at GPUs counts so long, max(3 × interval, 30 s): agents look once a second.
inline constexpr double kGpuFreshSeconds = 30;

// /metrics. What the ranks of one job may take, in the order in which it is cut: the further series
// of each rank first, then the core series of the highest ranks. Counted in
// lockstep_exposition_suppressed_series. The further ones are not shown at all of a job with more
// than kFullTierRanks ranks.
inline constexpr std::size_t kSeriesPerJob = 300'000;
inline constexpr std::size_t kFullTierRanks = 1024;
inline constexpr std::size_t kRankGpusShown = 16;  // in lockstep_rank_info
// Jobs without a report yet (kActiveJobs may wait) are shown in full up to this many: 20,000 of
// them would block lockstepd for 0.1 s a scrape.
inline constexpr std::size_t kSilentJobsShown = 500;
inline constexpr std::size_t kShards = 1024;  // of one job
// What one target of a job should have at most: Prometheus' scrape of it stays under a second.
inline constexpr std::size_t kSeriesPerShard = 50'000;
// Compressed remote-write requests that wait: some 20 bytes a sample, so about 3 million samples;
// an hour of 50 jobs of 8 ranks, some minutes of 10,000 ranks.
inline constexpr std::size_t kRemoteQueueBytes = 64U << 20U;
inline constexpr std::size_t kRemoteSamples = 5000;  // of one request: 1 MB before compression
inline constexpr std::size_t kMetricsPerJob = 64;    // names one job may report
inline constexpr std::size_t kStoreQueue = 100'000;  // writes waiting for the store thread

inline constexpr std::size_t kTokens = 10'000;     // valid at a time; 0.5 KiB each
inline constexpr std::size_t kTokensOfUser = 100;  // valid ones, and as many that have ended
inline constexpr std::int64_t kTokenDefaultSeconds = 30 * 86'400LL;
inline constexpr std::int64_t kTokenSeconds = 3'650 * 86'400LL;         // only the first has no end
inline constexpr auto kTokensRemembered = std::chrono::hours{30 * 24};  // after their end

// What is remembered of a node that was lost or at fault (daemon/store/node_history.hpp).
inline constexpr auto kNodeHistory = std::chrono::hours{90 * 24};
// The longest between the first rank that a scheduler ended and its word that all is over.
inline constexpr auto kEndTakes = std::chrono::minutes{10};
inline constexpr auto kNodeFaultsLately = std::chrono::hours{7 * 24};
inline constexpr std::size_t kNodeFaults = 1000;     // a node; 0.2 KiB each
inline constexpr std::size_t kNodeFaultsShown = 50;  // the newest, of one node

// Of a job, besides its end: after so many mails of one job its user knows that it is in trouble.
inline constexpr std::int64_t kNoticesOfJob = 64;
// Of a user, that wait to be delivered; at most 70 KiB each (two tracebacks), most have 1 KiB. The
// ends of a sweep of 1,000 jobs fit, for two targets.
inline constexpr std::size_t kNoticesWaiting = 2000;
inline constexpr auto kNoticePatience = std::chrono::hours{24};     // then one is given up
inline constexpr auto kWebhookDeadline = std::chrono::seconds{10};  // of one try
inline constexpr auto kMailDeadline = std::chrono::seconds{30};     // of sendmail's
// Webhooks under way at a time, each on a thread that is started when it is first needed.
inline constexpr std::size_t kNoticeThreads = 16;
inline constexpr std::size_t kNoticesOfUserAtATime = 4;  // under way, so that others have theirs

inline constexpr std::size_t kIngestBytes = 64U << 20U;  // telemetry waiting for the store

// --- agents and ranks ------------------------------------------------------------------------
inline constexpr std::size_t kAgentFrameBytes = 4U << 20U;  // one WebSocket message
// Of one that has not said HELLO, which is < 2 KiB; for so long it is waited for, and two looks of
// the listener more.
inline constexpr std::size_t kHelloBytes = 64U << 10U;
inline constexpr auto kHelloPatience = std::chrono::seconds{5};
// Connections with an attempt's ticket whose HELLO is not accepted: its nodes, and these: agents
// that come again before their last connection has ended.
inline constexpr std::size_t kCallersBeyondNodes = 16;
// Unread by one agent; TABLE of 16,384 nodes < 1 MiB.
inline constexpr std::size_t kAgentQueueBytes = 16U << 20U;
// Up to so many nodes every agent is told of all the others in WORLD itself: a larger world's would
// be most of what a rendezvous costs.
inline constexpr std::int32_t kWorldHosts = 64;
// Addresses of a node's interfaces in JOIN; a node has fewer than ten.
inline constexpr std::size_t kNodeAddresses = 16;
// Of all nodes in one WORLD: 16,384 with three addresses of IPv6 each.
inline constexpr std::size_t kAdmittedBytes = 2U << 20U;
// Up to so many nodes a rank's environment names them all: Linux gives a variable 128 KiB, and a
// host's name may have 64 characters.
inline constexpr std::int32_t kEnvironmentHosts = 1024;
inline constexpr std::size_t kReportBytes = 64U << 10U;  // one report of a rank
inline constexpr std::size_t kKeyBytes = 256;
inline constexpr std::size_t kValueBytes = 1U << 20U;  // gloo publishes < 1 KiB a rank
inline constexpr std::size_t kKeys = 1'000'000;        // per generation
inline constexpr std::size_t kWaiters = 200'000;       // ranks that wait at a time
// Additions and arrivals in a generation.
inline constexpr std::size_t kCountedRequests = 4'000'000;
inline constexpr std::size_t kBarriers = 100'000;          // names in a generation
inline constexpr std::size_t kKeyTotalBytes = 64U << 20U;  // per generation
// Of one multi_get or multi_set, in base 64: with its keys it fits a frame.
inline constexpr std::size_t kKeyAnswerBytes = 3U << 20U;
// Write-once values an agent keeps; 98,304 ranks' NCCL ids are 0.2 MiB.
inline constexpr std::size_t kKeyCacheBytes = 16U << 20U;
// The rendezvous for Horovod's ranks (job/agent/horovod/horovod_rendezvous.hpp); its keys, values
// and bytes are as of the store for torch's, below. A connection is for one request; its path is a
// key of 8 KiB.
inline constexpr std::size_t kHorovodConnections = 16'384;
inline constexpr std::size_t kHorovodHeadBytes = 16U << 10U;
inline constexpr auto kHorovodPatience = std::chrono::seconds{30};

// The store for torch's ranks (job/agent/torch_store/tcp_store.hpp). The first three are torch's
// own.
inline constexpr std::size_t kStoreKeyBytes = 8U << 10U;
inline constexpr std::size_t kStoreValueBytes = 8U << 20U;
inline constexpr std::size_t kStoreQueryKeys = 131'072;
// One query with all its keys and values, and one reply: eight of the largest values.
inline constexpr std::size_t kStoreQueryBytes = 64U << 20U;
inline constexpr std::size_t kStoreKeys = 4'000'000;  // 30 a rank in the largest job; 0.2 KiB each
// What it holds in all: gloo's full mesh of 2,048 ranks is 150 bytes a pair, 0.6 GiB. Of a small
// world one of the largest queries, and one of the largest values of each rank (store_bytes()).
inline constexpr std::size_t kStoreBytes = 1U << 30U;
// Queries half received and replies not taken yet, of all connections: as much again. Of a small
// world one of the largest replies of each rank, and one more.
inline constexpr std::size_t kStoreTransitBytes = 1U << 30U;
inline constexpr std::size_t kStoreConnections = 262'144;  // torch before 2.1 makes two a rank
inline constexpr std::size_t kBatchRows = 8192;            // rows in one batch
// Per node; then the oldest go, counted.
inline constexpr std::size_t kUnacknowledgedBytes = 64U << 20U;
// Of one GPU frame, once a second per node. A rank's GPU process may have children that compute.
inline constexpr std::size_t kGpuUses = 4096;
inline constexpr std::size_t kGpuXids = 256;       // kinds of errors × GPUs that a node remembers
inline constexpr std::size_t kGpuTextBytes = 96;   // NVML's longest is 96 with its zero
inline constexpr std::size_t kSuspensions = 1000;  // of an attempt; more are not told
inline constexpr std::size_t kXidEvents = 256;     // of an attempt; a broken GPU repeats itself
inline constexpr std::size_t kGpusShownInFull = 1024;  // in /metrics; beyond, the slim profile
inline constexpr std::size_t kGpusShown = 16'384;      // in /metrics at all: 40 MB of text
inline constexpr std::size_t kLineBytes = 4096;        // of a printed line that capture looks at
// A loss that is printed may be reported as well, from another thread or right behind it: so long,
// and so many of a rank, are kept until it is known that it reports none.
inline constexpr auto kReportFollows = std::chrono::milliseconds{500};
inline constexpr std::size_t kPrintedRows = 256;
inline constexpr std::int64_t kLogBytes = 64LL << 20U;     // kept per rank: the first and the last
inline constexpr std::int64_t kLogHeadBytes = 1LL << 20U;  // of those, from the beginning
inline constexpr std::size_t kLogTailBytes = 4096;         // in a cause
// Of a rank that failed by itself; one that only echoes it has a quarter of both.
inline constexpr std::size_t kTracebackBytes = 12U << 10U;
inline constexpr std::size_t kErrorBytes = 2048;           // an exception's message
inline constexpr std::size_t kRankTailBytes = 32U << 10U;  // of its output, with its agent
inline constexpr std::size_t kOthersNamed = 32;            // ranks that failed too, in a cause
inline constexpr std::size_t kExceptionNotes = 64;         // of a rank, kept by its agent
// Ranks that say that a peer is gone were heard before that peer: so long it is waited for.
inline constexpr auto kCulpritPatience = std::chrono::seconds{1};
inline constexpr auto kBeatInterval = std::chrono::seconds{1};
inline constexpr auto kAgentSilence = std::chrono::seconds{4};  // three missed beats and one
inline constexpr auto kAgentLost = std::chrono::seconds{60};    // not connected: the node is lost
// A node's times go into the events of its job, and TLS certificates have dates: milliseconds.
inline constexpr std::int64_t kClockTolerance = std::int64_t{5} * 60'000;
// An agent that was away when its job ended may come back this much later and deliver the rest.
inline constexpr auto kTicketPatience = std::chrono::seconds{60};
// Agents that were told to stop take their allocation with them; it is ended by force after this.
inline constexpr auto kLeavePatience = std::chrono::seconds{5};
// How long the scheduler's word on an end is waited for before the ranks' own stands.
inline constexpr auto kVerdictPatience = std::chrono::seconds{60};
// From a scheduler's first signal until its word that the allocation is over: the time that it
// leaves the ranks, as a rule 30 s, and a look at its jobs.
inline constexpr auto kSchedulersGrace = std::chrono::minutes{2};
// How much later than the scheduler we may have heard that an attempt has its nodes.
inline constexpr auto kPlacedLate = std::chrono::seconds{10};
// What a scheduler said last of an attempt's nodes may be older than its agents: it may have lost
// the job, and given it others under the same number. It is asked again in this time.
inline constexpr auto kForeignNodes = std::chrono::minutes{2};
// A hang is told from a slow step by at least this much, unless the job says otherwise.
inline constexpr auto kHangLeast = std::chrono::seconds{60};
// Before the first step the ranks' stacks are looked at so often, the first time no sooner than
// this, then after twice as long; what they show counts if it is the same this much later.
inline constexpr auto kStartLeast = std::chrono::seconds{60};
inline constexpr std::int32_t kStartLooks = 4;
inline constexpr auto kStartAgain = std::chrono::seconds{5};
// Whether each rank catches the signal for a checkpoint is asked of the agents for so long at most.
inline constexpr auto kSaveAnswers = std::chrono::seconds{3};
inline constexpr std::int32_t kDeafRankEvents = 8;  // of a generation, before its time limit
// What the ranks of a hang are doing is looked at for so long at most, before they are ended.
inline constexpr auto kEvidencePatience = std::chrono::seconds{12};
// An agent ends its own part sooner, so that what it has is heard.
inline constexpr auto kEvidenceTime = std::chrono::seconds{9};
inline constexpr auto kEvidenceTool = std::chrono::seconds{8};  // one debugger, NCCL's answer
inline constexpr auto kFlightDump = std::chrono::seconds{3};    // torch looks once a second
// NCCL's RAS is asked so often how far each rank is. An answer of 1 MiB takes NCCL's thread and the
// agent some 20 ms each, so after one that size it is asked so much later: < 0.5 % of a core.
inline constexpr auto kRasPoll = std::chrono::seconds{2};
inline constexpr auto kRasPollPerMib = std::chrono::seconds{4};
// One answer; 5,000 ranks, 600 bytes each, counted once per communicator that they are in.
inline constexpr std::size_t kRasAnswerBytes = 4U << 20U;
// Of one question and its answer: NCCL itself waits 5 s for a process that does not answer.
inline constexpr auto kRasPatience = std::chrono::seconds{8};
// NCCL's Inspector plugin posts so often what it has measured (job/agent/nccl). It sleeps as long
// when its last communicator is destroyed, and the rank waits for it.
inline constexpr auto kInspectorPost = std::chrono::seconds{2};
inline constexpr auto kInspectorRow = std::chrono::seconds{10};  // of a rank's history at the most
// Its posts: 1.3 KiB for each communicator, operation, message size and algorithm of two seconds.
inline constexpr std::size_t kOtlpBodyBytes = 256U << 10U;
inline constexpr std::size_t kOtlpTransitBytes = 8U << 20U;       // of all that are on their way
inline constexpr std::size_t kOtlpHeadBytes = 8U << 10U;          // the plugin's: 300 bytes
inline constexpr std::size_t kOtlpConnections = 256;              // a rank has one at a time
inline constexpr auto kOtlpPatience = std::chrono::seconds{2};    // the plugin's own
inline constexpr std::size_t kInspectorPluginBytes = 16U << 20U;  // 0.2 to 1.3 MiB as built
// Of a profile: some kinds of operation, each with some dozens of sizes, in a few communicators.
inline constexpr std::size_t kInspectorTableRows = 512;
// A rank that the others wait for in NCCL is told of after so long, with two looks to spare for the
// promised 10 s, if its job has not shown that its ranks wait as long and go on.
inline constexpr auto kDesyncLeast = std::chrono::seconds{4};
// Debuggers of a node at a time. Each reads the symbols of all of torch first: four at once on two
// cores take longer than each may.
inline constexpr std::size_t kEvidenceDebuggers = 1;
inline constexpr std::size_t kEvidenceParallel = 4;  // file systems of a node asked at a time
// The ranks' Pythons write their stacks in tens of milliseconds, or they do not.
inline constexpr auto kPythonStacks = std::chrono::milliseconds{500};
inline constexpr std::size_t kEvidenceProcesses = 32;  // of a rank; loaders' workers
// Of /proc/<pid>/status, which has some 1.5 KiB.
inline constexpr std::size_t kProcStatusBytes = 8192;
inline constexpr std::size_t kSignalProcesses = 4096;         // of a rank, looked through
inline constexpr std::size_t kEvidenceThreads = 256;          // of a process
inline constexpr std::size_t kEvidenceStacks = 3;             // processes of a rank, debugged
inline constexpr std::size_t kEvidenceFileBytes = 4U << 20U;  // one file; a stack is < 100 KiB
inline constexpr std::size_t kFlightDumpBytes = 16U << 20U;   // 2000 collectives are 2 MiB
inline constexpr std::size_t kEvidenceRanks = 256;            // in the event, laggards first
inline constexpr std::size_t kEvidenceFrames = 64;            // of one thread's stack
inline constexpr std::size_t kEvidenceGaps = 8;               // told of one rank
// Looks at the ranks of a generation that are kept, 0.1-0.5 MB each; the last of them is a hang's.
inline constexpr std::int32_t kEvidenceEvents = 64;
// A profile: of how many ranks at most, of how many if nobody says which, and of how many processes
// of a node.
inline constexpr std::size_t kProfileRanks = 64;
inline constexpr std::size_t kProfileRanksUsual = 16;
inline constexpr std::size_t kProfileProcesses = 16;
inline constexpr std::int64_t kProfileSecondsUsual = 5;
inline constexpr std::int64_t kProfileSeconds = 60;
// Beside twice the time that is recorded: a first step, a last one, the files.
inline constexpr auto kProfileMore = std::chrono::seconds{40};
// As in _lockstep_profile: the end of a first step is waited for, ten seconds, and a little more.
inline constexpr auto kProfileNoStep = std::chrono::seconds{10 + 3};
// The processes look at the clock, too.
inline constexpr auto kProfileLate = std::chrono::seconds{2};
// And so long for the agents, which copy what the ranks have written.
inline constexpr auto kProfileCopy = std::chrono::seconds{30};
inline constexpr std::size_t kProfileFileBytes = 64U << 20U;
inline constexpr std::size_t kProfileAnswerBytes = 64U << 10U;
// Of a generation: each may be megabytes a rank.
inline constexpr std::int32_t kProfileEvents = 64;
inline constexpr auto kGatherTimeout = std::chrono::seconds{300};  // agents that never call in
// With min_nodes of them there, the first start waits so long after the last that came.
inline constexpr auto kLateNodes = std::chrono::seconds{30};
// A lost node that has called in again is waited for so long before fewer go on without it.
inline constexpr auto kReturnPatience = std::chrono::seconds{3};
// How often a node that was lost may come back in one attempt: one that is lost again stays out.
inline constexpr std::int32_t kReturns = 1;
// A job's `setup` on a node, within the time that the ranks have to meet (kGatherTimeout).
inline constexpr auto kSetupTimeout = std::chrono::seconds{240};
inline constexpr std::size_t kSetupWords = 2000;              // of its output, in the cause
inline constexpr auto kStopGrace = std::chrono::seconds{10};  // SIGTERM to SIGKILL
// The pre-flight: agents look at their node, then at each other; the daemon waits a little longer
// than they take. They should take 2 s; a busy machine is no bad one.
inline constexpr auto kFactsPatience = std::chrono::seconds{15};
inline constexpr auto kProbePatience = std::chrono::seconds{8};
inline constexpr auto kCpuTestTimeout = std::chrono::seconds{60};
inline constexpr auto kGpuTestTimeout = std::chrono::seconds{20};  // 1 s; loading a driver more
// Of one round of the test in pairs: the test, its program's start, and the daemon's wait for both.
inline constexpr auto kPairTest = std::chrono::seconds{10};
inline constexpr auto kPairTestTimeout = std::chrono::seconds{20};
inline constexpr auto kPairPatience = std::chrono::seconds{25};
// The same of the test with NCCL, which takes 2 to 5 s: without its persistence mode the driver
// needs a second for each GPU first. Its own end comes before the agent's, which comes before the
// daemon's.
inline constexpr auto kNcclTest = std::chrono::seconds{20};
inline constexpr auto kNcclTestTimeout = std::chrono::seconds{30};
inline constexpr auto kNcclPatience = std::chrono::seconds{35};
inline constexpr std::size_t kNcclTestBytes = 64U << 10U;  // of what its program says
inline constexpr std::size_t kNcclErrors = 256U << 10U;    // of NCCL's own words, the first
inline constexpr std::size_t kNcclWarnings = 8;            // of a node in a round
// What two nodes' programs tell each other before they can use a library for that.
inline constexpr std::size_t kPeerKeyBytes = 1U << 20U;    // a key, a value: hundreds
inline constexpr std::size_t kPeerKeysBytes = 16U << 20U;  // all of them
inline constexpr auto kPeerKeySend = std::chrono::seconds{5};
inline constexpr std::size_t kPreflightEvents = 64;  // of an attempt: the job is copied with them
inline constexpr std::size_t kJobWarnings = 64;      // of a job; each text once
inline constexpr std::size_t kWarningBytes = 1024;   // of one of them, from an agent
// Of a generation, as they come; then only the newest, once in so long and at the end: a script may
// write one at each step.
inline constexpr std::int32_t kCheckpointEvents = 256;
inline constexpr auto kCheckpointPause = std::chrono::seconds{60};
// That agents tell of a generation, and of an attempt beside them: the first one ends it.
inline constexpr std::int32_t kFaultEvents = 64;
// Whoever has an attempt's ticket can be sent away again and again; the log has all of them.
inline constexpr std::int32_t kRefusalEvents = 16;                 // of an attempt
inline constexpr std::int32_t kAnomalyEvents = 8;                  // of a generation and kind
inline constexpr auto kOrphanPatience = std::chrono::minutes{30};  // finished agent, no daemon

// agent.json, claims, results and what an agent leaves when it gives up: each is < 1 KiB.
inline constexpr std::size_t kAttemptFileBytes = 64U << 10U;
inline constexpr std::size_t kGaveUpBytes = 1024;  // why an agent gave up, in an event
// Agents of a larger job call in spread over time, so that lockstepd takes them in as fast as it
// can, and none of them waits in its listener.
inline constexpr std::int32_t kCallersAtOnce = 512;
inline constexpr std::int64_t kCallersPerSecond = 16'384;
// After BYE, until the node is lost: with a spare at hand, and without. Agents of an allocation
// that ends say it one after another, and the scheduler's word on that is worth waiting for.
inline constexpr auto kByePatienceWithSpare = std::chrono::milliseconds{500};
inline constexpr auto kByePatience = std::chrono::seconds{3};
// Beyond the grace of ABORT: the agent kills, and gives up what cannot be killed, within 5 s.
inline constexpr auto kAbortPatience = kStopGrace + std::chrono::seconds{10};
// SIGKILL takes no longer, unless a process waits for a disk or a driver: then an agent's keeper
// starts nothing beside it.
inline constexpr auto kKillPatience = std::chrono::seconds{10};
// Nodes that a switch gives back come one after the other: they share one restart.
inline constexpr auto kReturnSettle = std::chrono::seconds{2};
// In a pre-flight: those that have not called in, once a node has failed by itself; spares, once as
// many nodes have answered as the ranks need.
inline constexpr auto kOthersPatience = std::chrono::seconds{3};
inline constexpr auto kSparePatience = std::chrono::seconds{1};
inline constexpr std::uint32_t kErrandBytes = 256U
                                              << 10U;     // answer of a forked probe: a file system
inline constexpr std::size_t kGpuTestBytes = 64U << 10U;  // 64 GPUs say a quarter of it
inline constexpr std::size_t kGpuProblemBytes = 240;      // of one GPU, below kTextBytes
// Peers that ask a node whether it can be reached: at a time, and each for so long.
inline constexpr std::size_t kProbeVisitors = 256;
inline constexpr auto kProbeVisit = std::chrono::seconds{3};
inline constexpr std::size_t kNics = 128;                // interfaces of a node
inline constexpr std::int64_t kRecentXidSeconds = 3600;  // an Xid in the kernel's log: not older
inline constexpr double kXidPauseSeconds = 60;           // between two reports of one Xid of a GPU
// A job's `setup`: the environment that it leaves (more than Linux starts a program with), and of
// its output that is masked: it is copied on the agent's thread, which has other things to answer.
inline constexpr std::size_t kSetupResultBytes = 4U << 20U;
inline constexpr std::uintmax_t kMaskedOutputBytes = 16U << 20U;
inline constexpr std::size_t kMaskedValueBytes = 6;  // shorter secrets are not looked for
// A rank's socket to its agent. A message is a value of 1 MiB in base 64 with its frame.
inline constexpr std::size_t kRankConnections = 64;           // processes of a rank
inline constexpr std::size_t kRankMessageBytes = 2U << 20U;   // one message
inline constexpr std::size_t kRankAnswersBytes = 16U << 20U;  // unread answers of one connection
inline constexpr int kRankMessagesLeft = 100'000;             // unread when the rank ends
inline constexpr std::int64_t kKeyWaitMs = 86'400'000;        // timeout_ms of a key operation
inline constexpr std::size_t kErrorFileBytes = 256U << 10U;   // TORCHELASTIC_ERROR_FILE's
// Losses of a process that has not said which rank it is: so long it may still say hello.
inline constexpr auto kHelloOfRankPatience = std::chrono::seconds{10};
// Of a warm standby's output, until it is a rank and its log takes it.
inline constexpr std::size_t kStandbyOutputBytes = 1U << 20U;
// Of one rank's evidence in an event: a word ("python", a kernel function), and 16 calls.
inline constexpr std::size_t kEvidenceWordBytes = 64;
inline constexpr std::size_t kEvidenceStackBytes = 4096;

// --- jobs that are over, and users' shares ---------------------------------------------------
inline constexpr std::int32_t kFullPauseSeconds =
    60;  // Retry-After at a quota: jobs end when they end
// Of the window of what is with the scheduler, that a user may have beyond it: of 1,000 places 62,
// enough for a scheduler to weigh them. Once users have doubled it so, one each.
inline constexpr std::size_t kWindowShare = 16;
// How long the /metrics of a job that is over is answered with an empty body, which ends its
// series: as long as a rank's outlive its last report, and longer than Prometheus takes to see that
// the target is not listed any more.
inline constexpr auto kEndedTargets = std::chrono::seconds{30};
// That there was a job, after its removal, in milliseconds: its leftovers in Slurm are cancelled.
inline constexpr std::int64_t kRemovalsKept = 90LL * 86'400'000;
inline constexpr std::int64_t kFilesOfJob = 1'000'000;  // that are counted for its size
// What a file system may take to say how full it is: a local one answers at once, one of the
// network within its own time-outs or never.
inline constexpr auto kDiskPatience = std::chrono::seconds{20};

// --- schedulers ------------------------------------------------------------------------------
inline constexpr std::size_t kScriptBytes = 4U << 20U;  // Slurm's max_script_size
// On one machine: simulated nodes; ranks of a job, each of which costs the agent a pipe, a socket
// and a process; attempts whose end can still be asked for; and what a keeper takes to end what its
// agent has left and to start it again.
inline constexpr std::int32_t kLocalNodes = 64;
inline constexpr std::int32_t kLocalRanks = 1024;
inline constexpr std::size_t kEndedAttempts = 1000;
inline constexpr auto kKeeperPatience = std::chrono::seconds{2};
// Slurm. A job's name: what is given, and what is taken for one of ours.
inline constexpr std::size_t kSlurmJobNameBytes = 128;
inline constexpr std::size_t kSlurmNameBytes = 200;
// Names in one hostlist; twice the largest cluster there is, and Slurm's own MAX_SLURM_NODES.
inline constexpr std::size_t kHostlistNames = 65'536;
// sbatch at a time, and since when one hangs: then it holds up no other, up to this many.
inline constexpr std::size_t kSubmissionsAtOnce = 32;
inline constexpr auto kLongSubmission = std::chrono::seconds{10};
inline constexpr auto kLastSubmissions = std::chrono::seconds{3};  // let finish at the end
// At Slurm's limit of submitted jobs, until the next try.
inline constexpr auto kSubmitLimitPause = std::chrono::seconds{15};
// A job that accounting still calls alive and the controller does not know: forgotten, unless the
// controller is only coming back.
inline constexpr auto kStaleAccounting = std::chrono::seconds{60};
// Beyond the lifetime of a credential, after which a submission cannot arrive any more.
inline constexpr auto kSlurmClockSkew = std::chrono::seconds{60};
// What Slurm knows more of a job whose ranks have told how they ended: then it goes without. Below
// kVerdictPatience: the end of the allocation is told before control stops waiting for it.
inline constexpr auto kSlurmDetailPatience = std::chrono::seconds{40};
static_assert(kSlurmDetailPatience < kVerdictPatience);
inline constexpr std::int32_t kAgentLogsRead = 512;  // of an attempt, for why its agents ended
inline constexpr std::size_t kWaitReasons = 32;      // words of Slurm's in /metrics, then "other"
// slurmrestd answers with everybody's jobs, and there may be many users with nothing to follow.
inline constexpr auto kIdleUser = std::chrono::minutes{10};
inline constexpr auto kSignerPatience =
    std::chrono::seconds{20};  // lockstep-exec about a signature
// What a look at a job has for files that lockstep-exec opens, beyond the one that was begun last:
// the job's agents are not heard meanwhile.
inline constexpr auto kLeftBehindPatience = std::chrono::seconds{10};
// JSON of a body, a statement and a credential.
inline constexpr std::size_t kSignatureFileBytes = 16U << 20U;

}  // namespace lockstep::limits
