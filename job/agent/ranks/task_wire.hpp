// What a task that srun has started and the agent of its node say to each other, over a stream
// socket in the agent's private folder. Frames of a 4-byte little-endian length and one JSON
// object:
//
//   task                                            agent
//   HELLO rank, generation, environment, [output] →
//                                                  ← PLAN what to become, or why not
//   STARTED pid                                   →
//   EXITED code, signal                           →
//
// [output]: the read end of the rank's stdout and stderr, passed with the first byte. PLAN comes
// once the agent has heard START, or its generation is over. If the agent closes the connection the
// task kills its rank; if the task does, its rank is gone.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::task_wire {

struct Hello {
    std::int32_t rank = 0;
    std::int32_t local_rank = 0;
    std::int32_t generation = 0;
    std::map<std::string, std::string> environment;
};
struct Plan {
    std::string refused;  // why it must not run; "" = it may
    std::string program;
    std::vector<std::string> argv;
    std::string directory;
    std::map<std::string, std::string> environment;
};
struct Exited {
    std::int32_t exit_code = -1;  // -1 when ended by a signal
    std::int32_t signal = 0;
};

std::string encode(const Hello& hello);
std::string encode(const Plan& plan);
std::string encode_pid(std::int64_t pid);
std::string encode(const Exited& exited);
// invalid: not what is expected.
Result<Hello> decode_hello(std::string_view text);
Result<Plan> decode_plan(std::string_view text);
Result<std::int64_t> decode_pid(std::string_view text);
Result<Exited> decode_exited(std::string_view text);

// The bytes of a frame.
std::string frame(std::string_view text);

// Takes a stream apart into frames.
class Reader {
  public:
    void feed(std::string_view bytes) { buffer_.append(bytes); }
    // The next whole frame, if it is there. invalid: a frame that is too large.
    Result<std::optional<std::string>> next();

  private:
    std::string buffer_;
};

// One read of what has arrived, without waiting; a descriptor that came with it goes to `passed`.
// Empty: nothing yet. unavailable: the other side has closed.
Result<std::string> receive(int socket, UniqueFd& passed);

// <attempt directory>/node-00000.tasks: the path of the socket on that node.
std::string file_name(std::int32_t node_rank);

}  // namespace lockstep::task_wire
