// The logs of a job's ranks as a FakeDaemon answers them, for tests of `lockstep logs`.
#pragma once

#include "job/base/json.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli {

// Logs as lockstepd answers them: an offset behind the end is the end. Each look at the job is a
// turn, in which a test writes; after the last one the job has ended.
class RankLogs {
  public:
    struct Log {
        std::string text;
        int owner = -1;   // whose it is; -1: the rank's own
        int attempt = 1;  // 0: not said, as by older versions
    };
    using Turn = std::function<void(std::map<int, Log>&)>;

    RankLogs(FakeDaemon& daemon, std::vector<Turn> in_turn) : turns(std::move(in_turn)) {
        const std::string job = std::string("GET /v1/jobs/") + kId;
        daemon.on(job + "/logs", [this](const ClientRequest& request) -> Result<ClientResponse> {
            if (older && request.target.find("&attempt=") != std::string::npos) {
                return ClientResponse{400,
                                      R"({"type":"urn:lockstep:problem:invalid",)"
                                      R"("detail":"unknown parameter"})",
                                      {}};
            }
            const auto rank = static_cast<int>(number(request.target, "rank="));
            const auto found = logs.find(rank);
            if (found == logs.end()) {
                return rank >= size
                           ? ClientResponse{404, R"({"detail":"no such rank"})", {}}
                           : ClientResponse{503,
                                            R"({"type":"urn:lockstep:problem:unavailable",)"
                                            R"("detail":"rank )" +
                                                std::to_string(rank) + R"( was not started yet"})",
                                            {}};
            }
            const auto asked = request.target.find("&attempt=");
            const auto before = std::find_if(earlier.begin(), earlier.end(), [&](const auto& one) {
                return asked != std::string::npos && one.first == rank &&
                       std::to_string(one.second.attempt) ==
                           request.target.substr(asked + 9,
                                                 request.target.find('&', asked + 1) - asked - 9);
            });
            if (asked != std::string::npos &&
                no_ranks.count(static_cast<int>(number(request.target, "attempt="))) > 0) {
                return ClientResponse{404,
                                      R"({"type":"urn:lockstep:problem:not_found",)"
                                      R"("detail":"attempt started no ranks"})",
                                      {}};
            }
            const Log& log = before == earlier.end() ? found->second : before->second;
            const std::size_t offset = std::min(number(request.target, "offset="), log.text.size());
            ClientResponse answer{200,
                                  log.text.substr(offset),
                                  {{"Lockstep-Log-Next", std::to_string(log.text.size())}}};
            if (log.owner >= 0) {
                answer.headers.emplace_back("Lockstep-Log-Rank", std::to_string(log.owner));
            }
            if (log.attempt > 0) {
                answer.headers.emplace_back("Lockstep-Log-Attempt", std::to_string(log.attempt));
            }
            return answer;
        });
        daemon.on(job + "/ranks", [this](const ClientRequest&) -> Result<ClientResponse> {
            std::string items;
            for (int rank = 0; rank < (size_now > 0 ? size_now : size); ++rank) {
                items += (rank == 0 ? R"({"rank":)" : R"(,{"rank":)") + std::to_string(rank) + "}";
            }
            return ClientResponse{200, R"({"items":[)" + items + "]}", {}};
        });
        daemon.on(job, [this](const ClientRequest&) -> Result<ClientResponse> {
            const bool runs = next_ < turns.size();
            if (runs) {
                turns[next_++](logs);
            } else if (at_end) {
                at_end(logs);
            }
            Json answer = Json::parse(job_json(runs ? "running" : "succeeded"));
            answer["resources"] = {{"nodes", 1}, {"ranks_per_node", size}};
            answer["attempts"] = attempts;
            return ClientResponse{200, answer.dump(), {}};
        });
    }
    std::map<int, Log> logs;                     // by rank; one that is not there has not started
    std::vector<std::pair<int, Log>> earlier{};  // of attempts before
    std::set<int> no_ranks{};                    // attempts that ended before they had any
    bool older = false;                          // does not know the parameter attempt
    int size = 3;
    int size_now = 0;  // ranks that /ranks has; 0: all
    Json attempts = Json::array();
    std::vector<Turn> turns;
    Turn at_end{};  // as it is when the job has ended

  private:
    static std::size_t number(const std::string& target, const std::string& name) {
        const auto at = target.find(name);
        return at == std::string::npos ? 0 : std::stoul(target.substr(at + name.size()));
    }

    std::size_t next_ = 0;
};

}  // namespace lockstep::cli
