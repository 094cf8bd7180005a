// The web page: `/` and the files of `/assets/`, as the build put them into lockstepd or, while the
// page is worked on, from a folder. Control thread; what it reads from a folder is read aside.
#pragma once

#include "daemon/http/base/message.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// One file as it was built in; the bytes are the program's.
struct BuiltInFile {
    std::string_view name;  // "index.html", "assets/main-3f2a.js"
    std::string_view bytes;
    bool gzip = false;  // they are gzip
};
using BuiltInFiles = std::span<const BuiltInFile>;

class WebPage {
  public:
    // Without files: `/` says that there is no page. With a folder: its index.html and assets/ take
    // the place of the files.
    explicit WebPage(BuiltInFiles files = {}, std::filesystem::path folder = {});

    bool from_folder() const { return !folder_.empty(); }
    bool built_in() const { return !files_.empty(); }
    // GET / and GET /assets/{name}; `name`: "index.html", "assets/…". 404 if there is none.
    HttpResponse answer(const HttpRequest& request, std::string_view name) const;
    // The same of the folder. Blocking; any thread.
    static HttpResponse read(const std::filesystem::path& folder, const std::string& name);
    const std::filesystem::path& folder() const { return folder_; }

  private:
    struct File {
        std::shared_ptr<const std::string> bytes;  // shared with the answers on their way
        bool gzip = false;
        std::string tag;        // of the bytes
        std::string plain_tag;  // of what they are without gzip
    };
    std::filesystem::path folder_;
    std::map<std::string, File, std::less<>> files_;
};

}  // namespace lockstep
