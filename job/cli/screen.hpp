// The whole terminal for one view: its other screen, no echo, keys as they are pressed. However the
// program ends (return, SIGINT, SIGTERM, SIGHUP, a crash), the terminal is as it was before;
// SIGTSTP gives it back for the time of the stop.
#pragma once

#include "job/base/result.hpp"
#include "job/cli/terminal.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

enum class Key {
    other,
    quit,
    sort,
    reverse,
    pause,
    help,
    up,
    down,
    page_up,
    page_down,
    home,
    end,
    redraw,
};

// Keys from what a terminal sends, in pieces of any size. Pure.
class KeyReader {
  public:
    std::vector<Key> feed(std::string_view bytes);
    // Nothing more came: an ESC that began nothing is a key of its own.
    std::vector<Key> flush();
    bool waiting() const { return !pending_.empty(); }

  private:
    std::string pending_;  // the beginning of an escape sequence
};

// At most one at a time; the main thread. Owns the terminal from enter() to its destruction.
class Screen {
  public:
    // unavailable: stdout is no terminal. Without a terminal to read from there are no keys.
    static Result<std::unique_ptr<Screen>> enter();
    ~Screen();
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;

    struct News {
        std::vector<Key> keys;
        bool resized = false;  // or brought back: everything has to be drawn
        bool closed = false;   // the terminal is gone
    };
    // Until a key, another size, `wake` is readable, or the time has passed.
    News wait(std::chrono::milliseconds at_most, int wake);

    // Writes the lines that have changed.
    void draw(const Terminal& terminal, const std::vector<std::string>& lines);
    // Forgets what was drawn.
    void forget() { shown_.clear(); }

  private:
    Screen() = default;

    KeyReader keys_;
    int input_ = -1;
    bool own_input_ = false;
    std::vector<std::string> shown_;
    std::size_t width_ = 0;
};

}  // namespace lockstep::cli
