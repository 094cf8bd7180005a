// The table of routes against what people read of it.
#include "daemon/http/routes/routes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

std::set<std::string> routes_of_table() {
    std::set<std::string> out;
    for (const RouteRow& row : route_table()) {
        out.insert(std::string{to_string(row.method)} + " " + std::string{row.path});
    }
    return out;
}

// The first cells of the table under "## API": "POST · GET /v1/tokens · DELETE /v1/tokens/{id}". A
// path without a method has that of the path before it; it may begin behind the last segment of
// that.
std::set<std::string> routes_of_readme(const std::set<std::string>& known) {
    std::ifstream file{LOCKSTEP_SOURCE_DIR "/daemon/http/README.md"};
    std::set<std::string> out;
    std::string line;
    while (std::getline(file, line) && !line.starts_with("| method and path |")) {
    }
    std::getline(file, line);
    while (std::getline(file, line) && line.starts_with("| ")) {
        std::istringstream words{line.substr(2, line.find(" |", 2) - 2)};
        std::vector<std::string> methods;
        bool fresh = true;  // methods belong to the next path
        std::string before;
        for (std::string word; words >> word;) {
            if (word == "·") {
                continue;
            }
            if (!word.starts_with('/')) {
                if (!fresh) {
                    methods.clear();
                }
                methods.push_back(word);
                fresh = true;
                continue;
            }
            fresh = false;
            const std::string behind = before.substr(0, before.rfind('/')) + word;
            before =
                !before.empty() && known.contains(methods.front() + " " + behind) ? behind : word;
            for (const std::string& method : methods) {
                out.insert(method + " " + before);
            }
        }
    }
    return out;
}

TEST(RouteTable, TheReadmeHasEveryRouteAndNoOther) {
    std::set<std::string> routes = routes_of_table();
    EXPECT_EQ(routes.size(), route_table().size()) << "a method and path twice";
    const std::set<std::string> shown = routes_of_readme(routes);
    routes.erase("GET /v1/agent");  // for lockstep-agent alone
    EXPECT_THAT(shown, testing::ContainerEq(routes));
}

}  // namespace
}  // namespace lockstep
