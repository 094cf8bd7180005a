// Log lines in logfmt to stderr: a fixed phrase to grep, then fields. spdlog behind it. Any thread.
//   log::info("job placed", {{"job", id}, {"node", name}});
// error = somebody must act. Secrets never.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep::log {

enum class Level { debug, info, warn, error };

struct Field {
    std::string_view key;
    std::string value;

    Field(std::string_view k, std::string_view v) : key(k), value(v) {}
    Field(std::string_view k, const std::string& v) : key(k), value(v) {}
    Field(std::string_view k, const char* v) : key(k), value(v) {}
    Field(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
    template <class Number>
        requires(std::integral<Number> || std::floating_point<Number>)
    Field(std::string_view k, Number v) : key(k), value(std::to_string(v)) {}
};
using Fields = std::initializer_list<Field>;

// Once, from main(). With `journal` each line starts with the <N> priority that journald reads.
void start(std::string_view program, Level level, bool journal);
// From now on `write` gets each line, with its end, instead of stderr; empty: stderr again. Called
// by any thread that logs, one at a time, so it must not log itself.
void redirect(std::function<void(std::string_view line)> write);
// "debug", "info", "warn", "error"; false if it is none of them.
bool parse_level(std::string_view text, Level& level);

void debug(std::string_view what, Fields fields = {});
void info(std::string_view what, Fields fields = {});
void warn(std::string_view what, Fields fields = {});
void error(std::string_view what, Fields fields = {});

}  // namespace lockstep::log
