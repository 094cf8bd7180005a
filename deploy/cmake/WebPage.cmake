# lockstep_web_page(<program>): builds web/ with Node.js and puts its files into the program, gzip as they are.
# LOCKSTEP_WEB=AUTO: where Node.js 18, npm and the page's packages are at hand, else the program says at `/` that
# it has no page. ON: all of it must be. OFF: none of it is looked for.
#
# The page's packages are fetched at configure time (`npm ci`, again only when package-lock.json has changed), so
# that what is missing is said there and the build itself needs no registry. web/ is copied into the build folder
# first: nothing is written into the source tree.
set(LOCKSTEP_WEB AUTO CACHE STRING "Build the web page into lockstepd: AUTO (if Node.js and the page's packages are at hand), ON, OFF")
option(LOCKSTEP_WEB_PACKED "Make the page as small as it gets: a tenth, for some seconds more" ON)
set(lockstep_web_script ${CMAKE_CURRENT_LIST_DIR}/build_web_page.cmake)

# Sets <reason> to why there can be no page, or to "".
function(lockstep_prepare_web source work reason)
  set(${reason} "" PARENT_SCOPE)
  if(NOT EXISTS ${source}/package.json OR NOT EXISTS ${source}/package-lock.json)
    set(${reason} "web/ has no package.json with its lock file" PARENT_SCOPE)
    return()
  endif()
  find_program(LOCKSTEP_NODE NAMES node nodejs)
  find_program(LOCKSTEP_NPM npm)
  mark_as_advanced(LOCKSTEP_NODE LOCKSTEP_NPM)
  if(NOT LOCKSTEP_NODE OR NOT LOCKSTEP_NPM)
    set(${reason} "no Node.js or no npm (apt-get install nodejs npm)" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${LOCKSTEP_NODE} --version OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET)
  string(REGEX MATCH "[0-9]+" major "${version}")
  if(NOT major OR major LESS 18)
    set(${reason} "Node.js ${version} is older than 18" PARENT_SCOPE)
    return()
  endif()
  # A build folder that is there fetches what a new lock file names.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source}/package-lock.json)
  file(SHA256 ${source}/package-lock.json lock)
  set(stamp ${work}/packages.sha256)
  if(EXISTS ${stamp})
    file(READ ${stamp} have)
    if(have STREQUAL lock)
      return()
    endif()
  endif()
  message(STATUS "Web page: npm ci fetches its packages")
  # npm ci takes the packages away before it fetches: until it is done there are none, whatever the stamp says.
  file(REMOVE ${stamp})
  file(MAKE_DIRECTORY ${work})
  file(COPY ${source}/package.json ${source}/package-lock.json DESTINATION ${work})
  execute_process(
    COMMAND ${LOCKSTEP_NPM} ci --omit=dev --no-audit --no-fund --prefer-offline --fetch-retries=1
            --fetch-retry-mintimeout=1000 --fetch-timeout=20000
    WORKING_DIRECTORY ${work} OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE status TIMEOUT 300)
  if(NOT status EQUAL 0)
    string(REGEX MATCH "npm (error|ERR!) [^\n]*" first "${said}")
    set(${reason} "npm ci cannot fetch its packages: ${first}" PARENT_SCOPE)
    return()
  endif()
  file(WRITE ${stamp} ${lock})
endfunction()

function(lockstep_web_page program)
  set(source ${PROJECT_SOURCE_DIR}/web)
  set(folder ${PROJECT_BINARY_DIR}/web)
  set(page ${folder}/built_in_page.cpp)
  set(reason "LOCKSTEP_WEB is OFF")
  if(LOCKSTEP_WEB)  # AUTO is true too
    # Other packages are fetched by the next build, too.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source}/package-lock.json)
    lockstep_prepare_web(${source} ${folder}/source reason)
  endif()
  if(reason)
    if(LOCKSTEP_WEB STREQUAL "ON")
      message(FATAL_ERROR "LOCKSTEP_WEB=ON: ${reason}")
    endif()
    message(STATUS "Web page: none: ${reason}")
    execute_process(COMMAND ${CMAKE_COMMAND} -DPAGE=${page} -P ${lockstep_web_script} COMMAND_ERROR_IS_FATAL ANY)
  else()
    message(STATUS "Web page: built into ${program}")
    # What the page is made of; what it is tested with and the packages do not make it anew.
    file(GLOB inputs CONFIGURE_DEPENDS ${source}/*.json ${source}/*.mjs ${source}/*.js ${source}/*.ts ${source}/*.html)
    file(GLOB_RECURSE more CONFIGURE_DEPENDS ${source}/src/* ${source}/public/*)
    add_custom_command(
      OUTPUT ${page}
      COMMAND ${CMAKE_COMMAND} -DSOURCE=${source} -DWORK=${folder}/source -DDIST=${folder}/dist -DPAGE=${page}
              -DPACKED=${LOCKSTEP_WEB_PACKED} -DNPM=${LOCKSTEP_NPM} -P ${lockstep_web_script}
      DEPENDS ${inputs} ${more} ${lockstep_web_script}
      COMMENT "Web page" VERBATIM)
  endif()
  target_sources(${program} PRIVATE ${page})
  set_source_files_properties(${page} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
