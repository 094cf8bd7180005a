#include "job/cli/spec_file.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"

#include <array>
#include <cstdio>

namespace lockstep::cli {

Result<std::string> read_spec(const std::string& path) {
    if (path != "-") {
        auto text = read_file(path, limits::kBodyBytes);
        if (!text) {
            // Whatever is wrong with the file is wrong with the arguments.
            return fail(Errc::invalid, text.error().message);
        }
        return text;
    }
    std::string text;
    std::array<char, 16'384> buffer{};
    while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
        text.append(buffer.data(), count);
        if (text.size() > limits::kBodyBytes) {
            return fail(Errc::invalid, "standard input: larger than 1 MiB");
        }
    }
    return text;
}

}  // namespace lockstep::cli
