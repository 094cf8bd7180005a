// Takes a job's secrets out of what its ranks print, before it is a log, a cause or a notice: each
// occurrence of a value, and of each line of one that has several, becomes ***. Only as they are:
// what a program encodes, escapes or takes apart is not recognized, so this saves from an accident
// and from nobody's intent. Values shorter than limits::kMaskedValueBytes stay: half of a log would
// go with them. Agent thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class SecretMask {
  public:
    explicit SecretMask(const std::vector<std::string>& values);
    // A whole text.
    std::string masked(std::string_view text) const;

  private:
    friend class MaskedStream;
    std::size_t open_from(std::string_view text) const;
    std::size_t replace(std::string_view text, std::size_t until, std::string& out) const;

    std::vector<std::string> values_;  // the longest first: one may hold another
};

// The same of a text that comes in pieces, of which any may end inside a value.
class MaskedStream {
  public:
    explicit MaskedStream(std::shared_ptr<const SecretMask> mask) : mask_(std::move(mask)) {}
    // What may go on now. The end that may be the beginning of a value stays here.
    std::string feed(std::string_view bytes);
    // The rest.
    std::string end();

  private:
    std::shared_ptr<const SecretMask> mask_;
    std::string held_;
};

}  // namespace lockstep
