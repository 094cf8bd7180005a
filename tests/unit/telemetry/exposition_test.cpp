// size: one family after the other, all of one fixture
#include "daemon/telemetry/exposition/exposition.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::telemetry {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kScrapedAt = 5000;

// What a scraper understands, and checks of what it would refuse: a family in two places, a sample
// before its TYPE, a series twice.
struct Parsed {
    std::map<std::string, std::string> types;
    std::map<std::string, std::string> values;  // "name{labels}" → value
    std::vector<std::string> errors;
};

std::string family_of(const std::string& name, const std::map<std::string, std::string>& types) {
    if (types.count(name) != 0) {
        return name;
    }
    for (const char* suffix : {"_bucket", "_sum", "_count", "_total", "_info"}) {
        const std::string ending = suffix;
        if (name.size() > ending.size() && name.ends_with(ending)) {
            const std::string base = name.substr(0, name.size() - ending.size());
            if (types.count(base) != 0) {
                return base;
            }
        }
    }
    return {};
}

Parsed parse(const std::string& text) {
    Parsed parsed;
    std::set<std::string> closed;
    std::string current;
    std::istringstream in{text};
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("# TYPE ")) {
            const auto blank = line.find(' ', 7);
            current = line.substr(7, blank - 7);
            if (!parsed.types.emplace(current, line.substr(blank + 1)).second) {
                parsed.errors.push_back("second TYPE of " + current);
            }
            continue;
        }
        if (line.starts_with("#")) {
            continue;
        }
        const auto blank = line.rfind(' ');
        const std::string series = line.substr(0, blank);
        const std::string name = series.substr(0, series.find('{'));
        if (family_of(name, parsed.types) != current) {
            parsed.errors.push_back("not in its family: " + line);
        }
        if (!parsed.values.emplace(series, line.substr(blank + 1)).second) {
            parsed.errors.push_back("twice: " + series);
        }
    }
    return parsed;
}

// Of its series, those that begin so.
std::ptrdiff_t count_series(const Parsed& parsed, const std::string& start) {
    return std::count_if(parsed.values.begin(), parsed.values.end(),
                         [&](const auto& one) { return one.first.starts_with(start); });
}

// Two ranks that report, a third that is silent, in one running job, and a job that only waits.
class ExpositionTest : public testing::Test {
  protected:
    ExpositionTest() : series_(3) {
        for (std::uint32_t rank = 0; rank < 3; ++rank) {
            Batch batch;
            batch.seq = 1;
            batch.node_rank = rank;
            batch.add_row(rank, 11, 4000);
            batch.set("loss", rank == 1 ? std::numeric_limits<double>::quiet_NaN() : 0.25);
            batch.set("step_seconds", 0.1);
            batch.set("busy_seconds", rank == 1 ? 0.08 : 0.02);
            batch.set("comm_wait_seconds", rank == 1 ? 0.0 : 0.06);
            batch.set("samples", 64);
            series_.ingest(batch, 1, rank == 2 ? kScrapedAt - 31 : kScrapedAt - 2);
        }
        jobs_.resize(2);
        jobs_[0].job_id = "ls-1";
        jobs_[0].name = "first";
        jobs_[0].user = "me";
        jobs_[0].framework = "native";
        jobs_[0].state = JobState::running;
        jobs_[0].ranks_expected = 3;
        jobs_[0].nodes = 2;
        jobs_[0].series = &series_;
        jobs_[0].span_seconds[static_cast<std::size_t>(Span::productive)] = 12.5;
        jobs_[0].span_seconds[static_cast<std::size_t>(Span::lost)] = 2.5;
        jobs_[0].ettr = 0.75;
        jobs_[0].lost_steps = 12;
        jobs_[0].restarts[static_cast<std::size_t>(CauseClass::hang)] = 2;
        jobs_[0].ranks = ranks_;
        jobs_[1].job_id = "ls-2";
        jobs_[1].state = JobState::queued;
        jobs_[1].ranks_expected = 4;
        view_.now = kScrapedAt;
        view_.jobs[static_cast<std::size_t>(JobState::running)] = 1;
        view_.jobs[static_cast<std::size_t>(JobState::queued)] = 1;
        view_.submitted_total = 7;
        view_.finished_total[static_cast<std::size_t>(FinishResult::oom)] = 1;
        view_.active = jobs_;
    }
    std::string render(TextFormat format = TextFormat::prometheus) {
        return render_metrics(format, daemon_, view_);
    }

    JobSeries series_;
    std::vector<RankMetricsView> ranks_{{0, 0, "n0"}, {1, 1, "n0"}, {2, 0, "n1"}};
    std::vector<JobMetricsView> jobs_;
    MetricsView view_;
    DaemonMetrics daemon_;
};

TEST_F(ExpositionTest, EveryFamilyIsInOnePlaceAndEverySeriesOnce) {
    daemon_.route("GET", "/v1/jobs/{id}").done(200, 0.002);
    for (const TextFormat format : {TextFormat::prometheus, TextFormat::openmetrics}) {
        const Parsed parsed = parse(render(format));
        EXPECT_THAT(parsed.errors, testing::IsEmpty());
        EXPECT_GT(parsed.values.size(), 100U);
    }
}

TEST_F(ExpositionTest, InPiecesItIsTheSameTextCutBetweenLines) {
    JobSeries many{3000};
    Batch batch;
    batch.seq = 1;
    for (std::uint32_t rank = 0; rank < 3000; ++rank) {
        batch.add_row(rank, 11, 4000);
        batch.set("loss", 1.0 / (rank + 1));
        batch.set("busy_seconds", 0.1);
    }
    many.ingest(batch, 1, kScrapedAt);
    jobs_[0].series = &many;
    std::string whole;
    MetricText text{TextFormat::prometheus, whole};
    write_jobs(text, view_);
    std::string joined;
    std::size_t pieces = 0;
    const std::size_t least = kPieceBytes;
    const PieceSink sink = [&](std::string piece) {
        EXPECT_EQ(piece.back(), '\n');
        EXPECT_LT(piece.size(), least + 1000);
        joined += piece;
        ++pieces;
        return "what was in it";  // the next piece begins empty all the same
    };
    render_metrics(TextFormat::openmetrics, daemon_, view_, sink);
    EXPECT_GE(pieces, 3U);
    EXPECT_TRUE(joined.ends_with("# EOF\n"));
    EXPECT_THAT(parse(joined).errors, testing::IsEmpty());
    std::string next;
    MetricText daemon{TextFormat::prometheus, next};
    daemon_.write(daemon);
    EXPECT_THAT(next, HasSubstr("lockstep_exposition_bytes " + std::to_string(joined.size())));
    joined.clear();
    pieces = 0;
    render_metrics(TextFormat::prometheus, daemon_, view_, sink);
    EXPECT_TRUE(joined.ends_with(whole));
}

TEST_F(ExpositionTest, TheBudgetCutsFurtherSeriesFirstThenTheHighestRanksAndCountsThem) {
    const std::string suppressed = "lockstep_exposition_suppressed_series";
    Parsed parsed = parse(render());
    EXPECT_EQ(parsed.values[R"(lockstep_rank_samples_total{job_id="ls-1",rank="0"})"], "64");
    EXPECT_EQ(parsed.values[R"(lockstep_rank_nonfinite_total{job_id="ls-1",rank="1"})"], "1");
    const std::string nothing = parsed.values[suppressed];
    view_.max_series_per_job = 3 * (kRankCoreSeries + kRankFullSeries) - 1;
    parsed = parse(render());
    EXPECT_EQ(count_series(parsed, "lockstep_rank_samples_total"), 0);
    EXPECT_EQ(count_series(parsed, "lockstep_rank_loss"), 2);
    EXPECT_EQ(std::stoi(parsed.values[suppressed]) - std::stoi(nothing),
              static_cast<int>(2 * kRankFullSeries));
    view_.max_series_per_job = kRankCoreSeries;
    parsed = parse(render());
    EXPECT_EQ(count_series(parsed, "lockstep_rank_loss"), 1);
    EXPECT_EQ(count_series(parsed, "lockstep_rank_info"), 1);
    EXPECT_EQ(std::stoi(parsed.values[suppressed]) - std::stoi(nothing),
              static_cast<int>(2 * kRankFullSeries + kRankCoreSeries));
    EXPECT_EQ(count_series(parsed, "lockstep_job_loss"), 3) << "aggregates are never cut";
}

TEST_F(ExpositionTest, TheMfuThatRanksReportIsAJobsSeriesAndAbsentWithoutOne) {
    EXPECT_EQ(count_series(parse(render()), "lockstep_job_mfu_ratio"), 0);
    Batch batch;
    batch.seq = 2;
    batch.add_row(0, 12, 4001);
    batch.set("mfu", 0.375);
    series_.ingest(batch, 1, kScrapedAt - 2);
    EXPECT_EQ(parse(render()).values.at(R"(lockstep_job_mfu_ratio{job_id="ls-1"})"), "0.375");
}

TEST_F(ExpositionTest, OfEstimatedStartsAFewAreShownAndTheOthersCounted) {
    const std::string suppressed = "lockstep_exposition_suppressed_series";
    const int before = std::stoi(parse(render()).values.at(suppressed));
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < limits::kSilentJobsShown + 10; ++i) {
        ids.push_back("ls-q" + std::to_string(i));
    }
    std::vector<StartEstimateView> starts;
    for (const std::string& id : ids) {
        starts.push_back({id, 1'800'000'000.5});
    }
    view_.starts = starts;
    const Parsed parsed = parse(render());
    const std::string family = "lockstep_job_start_estimate_timestamp_seconds";
    EXPECT_EQ(parsed.values.at(family + R"({job_id="ls-q0"})"), "1800000000.5");
    EXPECT_EQ(count_series(parsed, family), static_cast<std::ptrdiff_t>(limits::kSilentJobsShown));
    EXPECT_EQ(std::stoi(parsed.values.at(suppressed)) - before, 10);
}

TEST_F(ExpositionTest, ARankHasAsManySeriesAsTheBudgetCounts) {
    Batch batch;
    batch.seq = 2;
    batch.node_rank = 0;
    batch.add_row(0, 12, 4001);
    for (const RankMetric& row : kRankMetrics) {
        batch.set(row.name, 1);
    }
    series_.ingest(batch, 1, kScrapedAt - 2);
    const std::string text = render();
    const Parsed parsed = parse(text);
    const auto of_rank = std::count_if(parsed.values.begin(), parsed.values.end(), [](auto& one) {
        return one.first.starts_with("lockstep_rank_") &&
               one.first.find(R"(,rank="0")") != std::string::npos;
    });
    EXPECT_EQ(of_rank, static_cast<std::ptrdiff_t>(kRankCoreSeries + kRankFullSeries));
    for (const RankMetric& row : kRankMetrics) {
        if (row.shown != Shown::nowhere) {
            const bool total = row.aggregate == Aggregate::total;
            const std::string name = std::string{row.family} + (total ? "_total" : "");
            EXPECT_EQ(parsed.types.at(name), total ? "counter" : "gauge");
            EXPECT_EQ(parsed.values.at(name + R"({job_id="ls-1",rank="0"})"),
                      row.metric == CoreMetric::samples ? "65" : "1");
        }
    }
}

TEST_F(ExpositionTest, BandwidthsOfNcclHaveLabelsAndCountAsTheRanksFurtherSeries) {
    const std::string family = "lockstep_rank_nccl_bus_bandwidth_bytes_per_second";
    EXPECT_EQ(parse(render()).types.count(family), 0U);
    Batch batch;
    batch.seq = 2;
    batch.node_rank = 0;
    batch.add_row(0, -1, 4001);
    batch.set("nccl_bus_bandwidth_all_reduce_many", 2.5e10);
    batch.set("nccl_bus_bandwidth_recv_one", 7);
    batch.set("nccl_bus_bandwidth_of_another_kind", 8);
    batch.add_row(2, -1, 4001);
    batch.set("nccl_bus_bandwidth_recv_one", 9);
    series_.ingest(batch, 1, kScrapedAt - 2);
    Parsed parsed = parse(render());
    EXPECT_THAT(parsed.errors, testing::IsEmpty());
    EXPECT_EQ(parsed.types.at(family), "gauge");
    const std::string rank = R"({job_id="ls-1",rank="0",collective=")";
    EXPECT_EQ(std::stod(parsed.values.at(family + rank + R"(all_reduce",nodes="many"})")), 2.5e10);
    EXPECT_EQ(parsed.values.at(family + rank + R"(recv",nodes="one"})"), "7");
    const auto shown = [&] {
        return std::count_if(parsed.values.begin(), parsed.values.end(),
                             [&](const auto& one) { return one.first.starts_with(family); });
    };
    EXPECT_EQ(shown(), 2) << "rank 2 is silent, whatever is measured of it";
    view_.max_series_per_job = 3 * (kRankCoreSeries + kRankFullSeries + 2) - 1;
    parsed = parse(render());
    EXPECT_EQ(shown(), 0);
    view_.max_series_per_job += 1;
    parsed = parse(render());
    EXPECT_EQ(shown(), 2);
    // Nothing new is measured, though the rank itself reports on.
    Batch report;
    report.seq = 3;
    report.node_rank = 0;
    report.add_row(0, 1'000, 4040);
    report.set("loss", 1.0);
    series_.ingest(report, 1, kScrapedAt + 38);
    view_.now = kScrapedAt + 40;
    parsed = parse(render());
    EXPECT_EQ(shown(), 0) << "what is half a minute old";
}

TEST_F(ExpositionTest, BandwidthsOfTheGenerationBeforeAreNotShown) {
    const auto shown = [&] {
        const Parsed parsed = parse(render());
        return std::count_if(parsed.values.begin(), parsed.values.end(), [](const auto& one) {
            return one.first.starts_with("lockstep_rank_nccl_bus_bandwidth_");
        });
    };
    Batch batch;
    batch.seq = 2;
    batch.node_rank = 0;
    batch.add_row(0, -1, 4001);
    batch.set("nccl_bus_bandwidth_all_reduce_many", 2.5e10);
    series_.ingest(batch, 1, kScrapedAt - 2);
    EXPECT_EQ(shown(), 1);
    Batch next;
    next.seq = 3;
    next.generation = 2;
    next.node_rank = 0;
    next.add_row(0, 7, 4002);
    next.set("loss", 1.0);
    series_.ingest(next, 1, kScrapedAt - 1);
    EXPECT_EQ(shown(), 0) << "it may be on one node now";
}

// Alerts on slow ranks and on waits for data went on for as long as the job was in the queue.
TEST_F(ExpositionTest, AJobThatWaitsForAnotherAttemptHasCountersAndNoFiguresOfRanks) {
    jobs_[0].waits = true;
    jobs_[0].state = JobState::queued;
    jobs_[0].ranks = {};
    jobs_[0].nodes = 0;
    const JobStats before = compute_job_stats(series_, kScrapedAt);
    jobs_[0].stats = &before;
    const Parsed parsed = parse(render());
    const auto value = [&](const std::string& series) {
        const auto found = parsed.values.find(series);
        return found == parsed.values.end() ? std::string{"absent"} : found->second;
    };
    EXPECT_EQ(value(R"(lockstep_job_state{job_id="ls-1",state="queued"})"), "1");
    EXPECT_EQ(value(R"(lockstep_job_samples_total{job_id="ls-1"})"), "192");
    EXPECT_EQ(value(R"(lockstep_job_nonfinite_total{job_id="ls-1",what="loss"})"), "1");
    EXPECT_EQ(value(R"(lockstep_job_restarts_total{job_id="ls-1",cause="hang"})"), "2");
    EXPECT_EQ(value(R"(lockstep_job_span_seconds{job_id="ls-1",span="productive"})"), "12.5");
    EXPECT_EQ(value(R"(lockstep_job_step{job_id="ls-1"})"), "11");
    EXPECT_EQ(value(R"(lockstep_job_ranks_reporting{job_id="ls-1"})"), "0");
    for (const auto& [series, number] : parsed.values) {
        EXPECT_FALSE(series.starts_with("lockstep_rank_")) << series;
        EXPECT_FALSE(series.starts_with("lockstep_job_loss")) << series;
        EXPECT_FALSE(series.starts_with("lockstep_job_step_time_seconds")) << series;
        EXPECT_FALSE(series.ends_with("_ratio{job_id=\"ls-1\"}") &&
                     !series.starts_with("lockstep_job_ettr"))
            << series;
        EXPECT_FALSE(series.starts_with("lockstep_job_slowest_rank")) << series;
    }
}

TEST_F(ExpositionTest, HasTheNamesAndValuesOfTheCatalogue) {
    const Parsed parsed = parse(render());
    const auto expect = [&](const std::string& series, const std::string& value) {
        const auto found = parsed.values.find(series);
        ASSERT_NE(found, parsed.values.end()) << series;
        EXPECT_EQ(found->second, value) << series;
    };
    expect(R"(lockstep_job_info{job_id="ls-1",name="first",user="me",framework="native"})", "1");
    expect(R"(lockstep_jobs{state="running"})", "1");
    expect(R"(lockstep_jobs{state="held"})", "0");
    expect("lockstep_jobs_submitted_total", "7");
    expect(R"(lockstep_jobs_finished_total{result="oom"})", "1");
    expect(R"(lockstep_jobs_finished_total{result="completed"})", "0");
    expect(R"(lockstep_job_state{job_id="ls-1",state="running"})", "1");
    expect(R"(lockstep_job_state{job_id="ls-1",state="queued"})", "0");
    expect(R"(lockstep_job_ranks_expected{job_id="ls-2"})", "4");
    expect(R"(lockstep_job_ranks_reporting{job_id="ls-1"})", "2");
    expect(R"(lockstep_job_nodes{job_id="ls-1"})", "2");
    expect(R"(lockstep_job_restarts_total{job_id="ls-1",cause="hang"})", "2");
    expect(R"(lockstep_job_restarts_total{job_id="ls-1",cause="rank_exit"})", "0");
    expect(R"(lockstep_job_span_seconds{job_id="ls-1",span="productive"})", "12.5");
    expect(R"(lockstep_job_span_seconds{job_id="ls-1",span="lost"})", "2.5");
    expect(R"(lockstep_job_span_seconds{job_id="ls-1",span="stalled"})", "0");
    expect(R"(lockstep_job_ettr_ratio{job_id="ls-1"})", "0.75");
    expect(R"(lockstep_job_lost_steps_total{job_id="ls-1"})", "12");
    EXPECT_FALSE(parsed.values.contains(R"(lockstep_job_ettr_ratio{job_id="ls-2"})"));
    EXPECT_FALSE(parsed.values.contains(R"(lockstep_job_lost_steps_total{job_id="ls-2"})"));
    expect(R"(lockstep_job_step{job_id="ls-1"})", "11");
    expect(R"(lockstep_job_last_step_timestamp_seconds{job_id="ls-1"})", "4000");
    expect(R"(lockstep_job_samples_total{job_id="ls-1"})", "192");
    expect(R"(lockstep_job_loss{job_id="ls-1",stat="mean"})", "NaN");
    expect(R"(lockstep_job_loss{job_id="ls-1",stat="min"})", "0.25");
    expect(R"(lockstep_job_step_time_seconds{job_id="ls-1",stat="p99"})", "0.1");
    expect(R"(lockstep_job_comm_exposed_ratio{job_id="ls-1"})", "0.3");
    expect(R"(lockstep_job_slowest_rank{job_id="ls-1"})", "1");
    expect(R"(lockstep_job_nonfinite_total{job_id="ls-1",what="loss"})", "1");
    expect(R"(lockstep_job_nonfinite_total{job_id="ls-2",what="loss"})", "0");
    expect(R"(lockstep_rank_info{job_id="ls-1",rank="1",node="n0",local_rank="1"})", "1");
    expect(R"(lockstep_rank_step{job_id="ls-1",rank="0"})", "11");
    expect(R"(lockstep_rank_loss{job_id="ls-1",rank="0"})", "0.25");
    expect(R"(lockstep_rank_loss{job_id="ls-1",rank="1"})", "NaN");
    expect(R"(lockstep_rank_step_time_seconds{job_id="ls-1",rank="0"})", "0.1");
    expect(R"(lockstep_rank_busy_seconds{job_id="ls-1",rank="1"})", "0.08");
    expect(R"(lockstep_rank_comm_wait_seconds{job_id="ls-1",rank="0"})", "0.06");
    expect(R"(lockstep_rank_report_age_seconds{job_id="ls-1",rank="0"})", "2");
    EXPECT_EQ(parsed.types.at("lockstep_job_info"), "gauge");
    EXPECT_EQ(parsed.types.at("lockstep_job_samples_total"), "counter");
}

// The alert LockstepJobHang reads it: the time since the last step is also that of healthy jobs.
TEST_F(ExpositionTest, AHangIsTheDaemonsVerdictAndAbsentWhereNobodyKnows) {
    EXPECT_THAT(render(), Not(HasSubstr("lockstep_job_hang")));
    jobs_[0].hang = false;
    EXPECT_THAT(render(), HasSubstr("\nlockstep_job_hang{job_id=\"ls-1\"} 0\n"));
    jobs_[0].hang = true;
    const std::string text = render();
    EXPECT_THAT(text, HasSubstr("\nlockstep_job_hang{job_id=\"ls-1\"} 1\n"));
    EXPECT_THAT(text, Not(HasSubstr("lockstep_job_hang{job_id=\"ls-2\"}")));
}

TEST_F(ExpositionTest, WhatIsUnknownIsAbsent) {
    const std::string text = render();
    EXPECT_THAT(text, Not(HasSubstr("lockstep_job_step{job_id=\"ls-2\"")));
    EXPECT_THAT(text, Not(HasSubstr("lockstep_job_nodes{job_id=\"ls-2\"")));
    EXPECT_THAT(text, Not(HasSubstr("slurm_job_id")));
    EXPECT_THAT(text, Not(HasSubstr("lockstep_rank_data_wait_seconds")))
        << "nobody reported it: not even a TYPE";
    EXPECT_THAT(text, Not(HasSubstr("lockstep_job_grad_norm")));
    EXPECT_THAT(text, Not(HasSubstr("lockstep_job_last_checkpoint")));
}

TEST_F(ExpositionTest, ARankThatIsSilentForThirtySecondsVanishes) {
    EXPECT_THAT(render(), Not(HasSubstr(R"(lockstep_rank_loss{job_id="ls-1",rank="2"})")));
    view_.now = kScrapedAt - 2;
    EXPECT_THAT(render(), HasSubstr(R"(lockstep_rank_loss{job_id="ls-1",rank="2"})"));
}

TEST_F(ExpositionTest, OpenMetricsNamesFamiliesWithoutSuffixAndEnds) {
    const std::string text = render(TextFormat::openmetrics);
    EXPECT_THAT(text, HasSubstr("# TYPE lockstep_job_samples counter\n"));
    EXPECT_THAT(text, HasSubstr("lockstep_job_samples_total{job_id=\"ls-1\"} 192\n"));
    EXPECT_THAT(text, HasSubstr("# TYPE lockstep_job info\n"));
    EXPECT_THAT(text, HasSubstr("# TYPE lockstep_build info\n"));
    EXPECT_TRUE(text.ends_with("# EOF\n"));
    EXPECT_THAT(render(), Not(HasSubstr("# EOF")));
}

TEST_F(ExpositionTest, LabelsCannotBreakOutOrBreakTheScrape) {
    const std::string name = "a\"b\\c\nd\xFF\x01";
    jobs_[0].name = name;
    EXPECT_THAT(render(), HasSubstr("name=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\""));
}

TEST_F(ExpositionTest, AQueueOfThousandsIsCutAndTheCutIsCounted) {
    const JobMetricsView running = jobs_[0];
    jobs_.clear();
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < limits::kSilentJobsShown + 10; ++i) {
        ids.push_back("ls-q" + std::to_string(i));
    }
    for (const auto& id : ids) {
        jobs_.emplace_back().job_id = id;
    }
    jobs_.push_back(running);
    view_.active = jobs_;
    const Parsed parsed = parse(render());
    EXPECT_EQ(parsed.values.at("lockstep_exposition_suppressed_series"),
              std::to_string(10 * kSilentJobSeries));
    const auto shown = [&](const std::string& id) {
        return parsed.values.count("lockstep_job_ranks_expected{job_id=\"" + id + "\"}") != 0;
    };
    EXPECT_TRUE(shown(ids[limits::kSilentJobsShown - 1]));
    EXPECT_FALSE(shown(ids[limits::kSilentJobsShown]));
    EXPECT_TRUE(shown("ls-1")) << "who reports is always there";
    const auto of_one = std::count_if(parsed.values.begin(), parsed.values.end(), [&](auto& v) {
        return v.first.find("job_id=\"ls-q7\"") != std::string::npos;
    });
    EXPECT_EQ(of_one, static_cast<std::ptrdiff_t>(kSilentJobSeries));
}

TEST_F(ExpositionTest, PromtoolAcceptsIt) {
    if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
        GTEST_SKIP() << "promtool is not installed (Debian package prometheus)";
    }
    daemon_.route("GET", "/v1/jobs/{id}").done(200, 0.002);
    FILE* promtool = popen("promtool check metrics 2>&1", "w");
    ASSERT_NE(promtool, nullptr);
    const std::string text = render();
    EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), promtool), text.size());
    const int status = pclose(promtool);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "see promtool's output above";
}

TEST(Negotiate, FollowsTheAcceptHeader) {
    EXPECT_EQ(negotiate(""), TextFormat::prometheus);
    EXPECT_EQ(negotiate("*/*"), TextFormat::prometheus);
    EXPECT_EQ(negotiate("text/plain;version=0.0.4"), TextFormat::prometheus);
    // What Prometheus 2.42 sends.
    EXPECT_EQ(negotiate("application/openmetrics-text;version=1.0.0,"
                        "application/openmetrics-text;version=0.0.1;q=0.75,"
                        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
              TextFormat::openmetrics);
    EXPECT_EQ(negotiate("application/openmetrics-text;q=0.2, text/plain;q=0.9"),
              TextFormat::prometheus);
    EXPECT_EQ(negotiate("application/openmetrics-text;q=0"), TextFormat::prometheus);
    EXPECT_EQ(content_type(TextFormat::prometheus), "text/plain; version=0.0.4; charset=utf-8");
}

TEST(FinishResult, SpeaksSlurmsWords) {
    EXPECT_EQ(finish_result(JobState::succeeded, CauseClass::none), FinishResult::completed);
    EXPECT_EQ(finish_result(JobState::cancelled, CauseClass::cancelled_by_user),
              FinishResult::cancelled);
    EXPECT_EQ(finish_result(JobState::failed, CauseClass::oom), FinishResult::oom);
    EXPECT_EQ(finish_result(JobState::failed, CauseClass::time_limit), FinishResult::timeout);
    EXPECT_EQ(finish_result(JobState::failed, CauseClass::rank_exit), FinishResult::failed);
}

}  // namespace
}  // namespace lockstep::telemetry
