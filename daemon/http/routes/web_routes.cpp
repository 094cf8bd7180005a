// The web page: GET / and its assets.
#include "daemon/http/routes/folder_reads.hpp"
#include "daemon/http/routes/routes.hpp"
#include "daemon/http/routes/web_page.hpp"

#include <utility>

namespace lockstep {
namespace {

Task<HttpResponse> read_page(RouteContext context, std::string name) {
    const std::filesystem::path folder = context.page->folder();
    std::function<HttpResponse()> work = [folder, name = std::move(name)] {
        return WebPage::read(folder, name);
    };
    std::string where = folder.string();
    co_return co_await read_aside(context, std::move(where), std::move(work));
}

Handler page_handler(const RouteContext& context, std::string (*name)(const HttpRequest&)) {
    if (context.page->from_folder()) {
        return SlowHandler{[context, name](const HttpRequest& request) {
            return read_page(context, name(request));
        }};
    }
    return FastHandler{[page = context.page, name](const HttpRequest& request) {
        return page->answer(request, name(request));
    }};
}

}  // namespace

RouteParts get_page_route(const RouteContext& context) {
    RouteParts route;
    route.handler =
        page_handler(context, [](const HttpRequest&) { return std::string{"index.html"}; });
    route.summary = "The web page, or a notice if this daemon was built without it.";
    route.headers = {
        {"If-None-Match", "string", "ETag of an answer before: 304 if nothing has changed."}};
    route.answer_headers = {{"ETag", "string", "Of this answer, for If-None-Match."}};
    return route;
}

RouteParts get_page_asset_route(const RouteContext& context) {
    RouteParts route;
    route.handler = page_handler(context, [](const HttpRequest& request) {
        return "assets/" + std::string{request.param()};
    });
    route.summary = "A file of the web page; it has a hash in its name and never changes.";
    route.headers = {
        {"If-None-Match", "string", "ETag of an answer before: 304 if nothing has changed."}};
    route.answer_headers = {{"ETag", "string", "Of this answer, for If-None-Match."}};
    return route;
}

}  // namespace lockstep
