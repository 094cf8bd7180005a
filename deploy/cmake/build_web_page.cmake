# cmake -DPAGE=FILE [-DSOURCE=web -DWORK=DIR -DDIST=DIR -DNPM=npm -DPACKED=ON] -P build_web_page.cmake
# Copies web/ to WORK, where its packages are, builds it into DIST and writes PAGE: C++ that has the files of DIST
# (NAME.gz in the place of NAME where there is one) by .incbin. Without SOURCE a PAGE that has none.
cmake_minimum_required(VERSION 3.25)

set(data "")
set(table "")
set(symbols "")
set(count 0)
if(SOURCE)
  file(GLOB entries RELATIVE ${SOURCE} ${SOURCE}/*)
  list(REMOVE_ITEM entries node_modules dist test tests)
  foreach(entry ${entries})
    file(REMOVE_RECURSE ${WORK}/${entry})
    file(COPY ${SOURCE}/${entry} DESTINATION ${WORK})
  endforeach()
  file(REMOVE_RECURSE ${DIST})
  set(quick --quick)
  if(PACKED)
    set(quick "")
  endif()
  execute_process(COMMAND ${NPM} run --silent build -- --outdir ${DIST} ${quick} WORKING_DIRECTORY ${WORK}
                  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT status EQUAL 0 OR NOT EXISTS ${DIST}/index.html)
    message(FATAL_ERROR "The web page does not build (${status}):\n${said}\nLOCKSTEP_WEB=OFF leaves it out.")
  endif()
  file(GLOB_RECURSE files RELATIVE ${DIST} ${DIST}/*)
  list(FILTER files EXCLUDE REGEX "\\.gz$")
  list(SORT files)
  foreach(file ${files})
    set(path ${DIST}/${file})
    set(gzip false)
    if(EXISTS ${path}.gz)
      string(APPEND path ".gz")
      set(gzip true)
    endif()
    # The sum makes the text another one whenever a file is: a cache of compilations need not know .incbin.
    file(SHA256 ${path} sum)
    string(APPEND data "    \"lockstep_page_${count}: .incbin \\\"${path}\\\"\\n\"  // ${sum}\n"
                       "    \"lockstep_page_${count}_end:\\n\"\n")
    string(APPEND symbols "extern const char lockstep_page_${count}[];\nextern const char lockstep_page_${count}_end[];\n")
    string(APPEND table "        {\"${file}\", {lockstep_page_${count}, lockstep_page_${count}_end}, ${gzip}},\n")
    math(EXPR count "${count} + 1")
  endforeach()
endif()

set(text "// Written by deploy/cmake/build_web_page.cmake.\n#include \"daemon/lockstepd/built_in_page.hpp\"\n\n#include <array>\n\n")
if(count GREATER 0)
  string(APPEND text "asm(\n    \".pushsection .rodata,\\\"a\\\",@progbits\\n\"\n${data}    \".popsection\\n\");\n\n"
                     "extern \"C\" {\n${symbols}}\n\n")
endif()
string(APPEND text "namespace lockstep {\n\nBuiltInFiles built_in_page() {\n"
                   "    static const std::array<BuiltInFile, ${count}> files{{\n${table}    }};\n    return files;\n}\n\n"
                   "}  // namespace lockstep\n")
if(NOT SOURCE AND EXISTS ${PAGE})
  file(READ ${PAGE} before)
  if(before STREQUAL text)
    return()  # configured again: nothing is to be compiled again
  endif()
endif()
file(WRITE ${PAGE} "${text}")
