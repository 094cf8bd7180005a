// The web page's files as the build put them into this program; none if it was built without it.
// The source is written by the build (deploy/cmake/WebPage.cmake). Any thread.
#pragma once

#include "daemon/http/routes/web_page.hpp"

namespace lockstep {

BuiltInFiles built_in_page();

}  // namespace lockstep
