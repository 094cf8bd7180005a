// A Control that keeps its answers in plain members; what it was asked is kept too.
#pragma once

#include "daemon/control/base/control.hpp"
#include "daemon/control/base/query_error.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

inline constexpr const char* kJob = "ls-01ARZ3NDEKTSV4RRFFQ69G5FAV";

class FakeGate final : public AgentGate {
  public:
    Result<std::shared_ptr<AgentSession>> open(const std::string& ticket,
                                               std::shared_ptr<AgentPeer> peer,
                                               std::string remote) override {
        tickets.push_back(ticket);
        remotes.push_back(std::move(remote));
        if (!answer) {
            return fail(Errc::denied, "no such ticket");
        }
        return answer(std::move(peer));
    }
    std::function<Result<std::shared_ptr<AgentSession>>(std::shared_ptr<AgentPeer>)> answer;
    std::vector<std::string> tickets, remotes;
};

class FakeControl final : public Control,
                          public Commands,
                          public JobStream,
                          public MetricsExposition {
  public:
    template <class T>
    using Answer = Task<Result<T>>;

    Task<SubmitResult<Submitted>> submit(Caller caller, SubmitRequest request) override {
        callers.push_back(caller);
        submissions.push_back(request);
        if (submit_error) {
            co_return refuse(*submit_error);
        }
        Submitted done;
        done.id = kJob;
        done.job_json = std::make_shared<const std::string>(R"({"id":"x"})");
        done.repeated = repeated;
        co_return done;
    }
    Result<Json> render(const Caller&, const JobSpec& spec) override {
        Json json = Json::object();
        json["render_hash"] = "abc";
        json["name"] = spec.name;
        return json;
    }
    Result<std::shared_ptr<const std::string>> show_now(const Caller& caller,
                                                        std::string_view id) override {
        callers.push_back(caller);
        if (id != kJob) {
            return fail(Errc::not_found, "no such job");
        }
        return in_memory ? job : std::shared_ptr<const std::string>{};
    }
    Answer<std::shared_ptr<const std::string>> show(Caller, std::string) override {
        ++shown;
        co_return job;
    }
    Answer<std::string> list(Caller caller, JobQuery query) override {
        callers.push_back(caller);
        queries.push_back(query);
        if (query.cursor == "bad") {
            co_return fail(query_error("cursor", "not one of this service"));
        }
        co_return std::string{R"({"items":[]})"};
    }
    Answer<std::string> cancel(Caller, std::string id) override { co_return text(id); }
    Task<SubmitResult<CommandDone>> restart(Caller, std::string id, std::string key) override {
        commands_given.push_back("restart " + key);
        co_return commanded(id);
    }
    Task<SubmitResult<CommandDone>> checkpoint(Caller, std::string id, std::string key) override {
        commands_given.push_back("checkpoint " + key);
        co_return commanded(id);
    }
    Answer<std::string> cancel_sweep(Caller, std::string) override {
        co_return std::string{R"({"cancelled":3})"};
    }
    Answer<std::string> remove(Caller, std::string id, bool keep) override {
        co_return R"({"removed":")" + id + R"(","directory":"/runs","checkpoints_kept":)" +
            (keep ? "true}" : "false}");
    }
    Answer<DiskPlace> disk(Caller, std::string) override {
        DiskPlace out;
        out.directory = "/there/is/none";
        out.history_bytes = 2;
        co_return out;
    }
    Answer<std::string> spec(Caller, std::string) override {
        co_return std::string{R"({"name":"a","framework":"command","command":["true"]})"};
    }
    Answer<std::string> script(Caller, std::string) override {
        if (script_text.empty()) {
            co_return fail(Errc::not_found, "the local scheduler uses no batch script");
        }
        co_return script_text;
    }
    Answer<std::string> events(Caller, std::string id, EventsQuery query) override {
        co_return text(id + " " + std::to_string(query.newest_first ? -query.before : query.after) +
                       " " + std::to_string(query.limit));
    }
    Answer<std::string> ranks(Caller, std::string id, RanksQuery query) override {
        ranks_queries.push_back(query);
        co_return text(id);
    }
    std::vector<RanksQuery> ranks_queries;
    Answer<std::string> heatmap(Caller, std::string id, HeatmapQuery query) override {
        heatmap_queries.push_back(query);
        co_return "LSH1" + id;
    }
    Answer<std::string> samples(Caller, std::string id, SamplesQuery query) override {
        samples_queries.push_back(query);
        if (query.cursor == "bad") {
            co_return fail(query_error("cursor", "not one of this service"));
        }
        co_return text(id);
    }
    Answer<std::string> metric_names(Caller, std::string id) override { co_return text(id); }
    Answer<std::string> gpus(Caller, std::string id, std::size_t, std::size_t) override {
        co_return text(id);
    }
    Answer<std::string> job_nodes(Caller, std::string id) override { co_return text(id); }
    Answer<std::string> series(Caller, std::string id, SeriesQuery query) override {
        series_queries.push_back(query);
        co_return text(id);
    }
    Answer<LogPlace> log_place(Caller, std::string, std::int32_t rank,
                               std::int32_t attempt) override {
        log_attempts.push_back(attempt);
        if (rank != 0) {
            co_return fail(Errc::not_found, "no such rank");
        }
        if (place_error) {
            co_return fail(*place_error);
        }
        if (attempt == 0 && first_place) {
            LogPlace before = std::move(*first_place);
            first_place.reset();
            co_return before;
        }
        if (attempt != 0 && earlier_places) {
            const auto found = earlier_places->find(attempt);
            if (found == earlier_places->end()) {
                co_return fail(Errc::not_found, "started no ranks");
            }
            co_return found->second;
        }
        co_return place;
    }
    Answer<std::string> evidence(Caller caller, std::string id, CapturesQuery query) override {
        callers.push_back(caller);
        evidence_limits.push_back(query.limit);
        evidence_before.push_back(query.before);
        co_return text(id);
    }
    Answer<EvidencePlace> evidence_place(Caller, std::string, EvidenceQuery query) override {
        evidence_queries.push_back(query);
        if (query.rank != 0 || query.name == "agent.json") {
            co_return fail(Errc::not_found, "no such rank");
        }
        co_return evidence_at;
    }
    Answer<std::string> take_evidence(Caller, std::string id) override { co_return text(id); }
    Answer<std::string> take_profile(Caller, std::string, ProfileQuery query) override {
        profile_queries.push_back(query);
        if (!query.ranks.empty() && query.ranks.back() > 7) {
            co_return fail(Errc::invalid, "ranks: the job has 0-7");
        }
        co_return R"({"attempt":1,"generation":1,"profile":1,"ranks":[0],"seconds":5,"patience_seconds":80})";
    }
    Answer<std::string> profiles(Caller, std::string id, CapturesQuery query) override {
        evidence_before.push_back(query.before);
        co_return text(id);
    }
    Answer<EvidencePlace> profile_place(Caller, std::string, EvidenceQuery query) override {
        evidence_queries.push_back(query);
        co_return evidence_at;
    }
    std::vector<ProfileQuery> profile_queries;
    std::vector<EvidenceQuery> evidence_queries;
    std::vector<std::int32_t> log_attempts;
    std::vector<std::size_t> evidence_limits;
    std::vector<std::int64_t> evidence_before;
    EvidencePlace evidence_at;
    Json cluster() override { return cluster_json(machines, "local"); }
    Answer<std::string> nodes(Caller caller, NodeQuery query) override {
        callers.push_back(caller);
        const auto page = nodes_json(machines, query, {});
        if (!page) {
            co_return fail(page.error());
        }
        co_return dump_json(*page);
    }
    Answer<std::string> node(Caller caller, std::string name) override {
        callers.push_back(caller);
        if (name != "n1") {
            co_return fail(Errc::not_found, "the scheduler has no node " + name);
        }
        co_return text(name);
    }
    Cluster machines;
    std::shared_ptr<void> subscribe(Sink sink) override {
        const int key = next_sink++;
        sinks[key] = std::move(sink);
        return std::shared_ptr<void>{nullptr, [this, key](void*) { sinks.erase(key); }};
    }
    Answer<std::vector<StreamMessage>> replay(std::int64_t after, std::size_t limit) override {
        std::vector<StreamMessage> out;
        for (const auto& message : stored) {
            if (message.seq > after && out.size() < limit) {
                out.push_back(message);
            }
        }
        if (during_replay) {
            during_replay();
        }
        co_return out;
    }
    std::int64_t last_seq() const override { return stored.empty() ? 0 : stored.back().seq; }
    MetricsBody metrics(const Caller& caller, std::string_view) override {
        callers.push_back(caller);
        return {"text/plain; version=0.0.4; charset=utf-8", "",
                [](const telemetry::PieceSink& sink) { sink("up 1\n"); }};
    }
    MetricsBody own_metrics(std::string_view) override {
        return {"text/plain; version=0.0.4; charset=utf-8", "own 1\n", {}};
    }
    Result<MetricsBody> job_metrics(const Caller& caller, std::string_view id,
                                    telemetry::Shard shard, std::string_view accept) override {
        callers.push_back(caller);
        if (id != kJob) {
            return fail(Errc::not_found, "no such job");
        }
        return MetricsBody{
            std::string{accept},
            "part " + std::to_string(shard.index) + " of " + std::to_string(shard.count) + "\n",
            {}};
    }
    std::vector<ScrapeTarget> scrape_targets(const Caller& caller) override {
        callers.push_back(caller);
        return scraped;
    }
    std::vector<ScrapeTarget> scraped;
    Task<Status> ready() override {
        if (ready_error) {
            co_return fail(*ready_error);
        }
        co_return Status{};
    }
    Commands& commands() override { return *this; }
    JobStream& stream() override { return *this; }
    MetricsExposition& exposition() override { return *this; }
    AgentGate& agents() override { return gate; }

    void publish(const StreamMessage& message) {
        const auto now = sinks;
        for (const auto& [key, sink] : now) {
            sink(message);
        }
    }
    static StreamMessage message(std::int64_t seq, std::string topic, std::string user) {
        return {seq, std::move(topic), seq == 0 ? "ranks" : "submitted",
                std::make_shared<const std::string>("{\"seq\":" + std::to_string(seq) + "}"),
                std::move(user)};
    }

    FakeGate gate;
    std::vector<Caller> callers;
    std::vector<SubmitRequest> submissions;
    std::vector<std::string> commands_given;  // restart and checkpoint, with their keys
    std::vector<JobQuery> queries;
    std::vector<SeriesQuery> series_queries;
    std::vector<HeatmapQuery> heatmap_queries;
    std::vector<SamplesQuery> samples_queries;
    std::vector<StreamMessage> stored;
    std::function<void()> during_replay;
    std::map<int, Sink> sinks;
    std::shared_ptr<const std::string> job = std::make_shared<const std::string>(R"({"id":"y"})");
    std::optional<SubmitError> submit_error;
    std::optional<Error> place_error, ready_error;
    std::string script_text;  // "" = the scheduler uses none
    LogPlace place;
    std::optional<LogPlace> first_place;                             // once, instead of it
    std::optional<std::map<std::int32_t, LogPlace>> earlier_places;  // by attempt
    bool repeated = false;
    bool in_memory = true;
    int shown = 0;
    int next_sink = 0;

  private:
    SubmitResult<CommandDone> commanded(const std::string& id) const {
        if (submit_error) {
            return refuse(*submit_error);
        }
        CommandDone done;
        done.job_json = text(id);
        done.already = repeated;
        return done;
    }
    static std::string text(const std::string& what) {
        return dump_json(Json::object({{"asked", what}}));
    }
};

}  // namespace lockstep
