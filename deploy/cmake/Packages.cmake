# What CPack makes of the build folder, compiling nothing (`cmake --build` comes first):
#
#   cpack -G DEB -B DIR --config BUILD/CPackConfig.cmake   lockstepd, lockstep, lockstep-agent, lockstep-train and
#                                                          liblockstep-dev for the distribution that it runs on
#   cpack -G RPM …, cpack -G TGZ …                         lockstep-node: the portable programs (Portable.cmake), for
#                                                          every distribution with glibc 2.28
# Debian's name what they depend on by dpkg-shlibdeps. No script of theirs starts or restarts a service.
set(packages ${PROJECT_SOURCE_DIR}/deploy/packages)
set(made ${PROJECT_BINARY_DIR}/packages)

# The units as the packages lay them out: programs in /usr/bin, settings in /etc/lockstep.
file(READ ${PROJECT_SOURCE_DIR}/deploy/systemd/lockstepd.service unit)
string(REPLACE "/usr/local/bin/lockstepd --data-dir /var/lib/lockstep" "/usr/bin/lockstepd --config /etc/lockstep/lockstepd.toml"
       unit "${unit}")
file(WRITE ${made}/lockstepd.service "${unit}")
file(READ ${PROJECT_SOURCE_DIR}/deploy/systemd/lockstepd-user.service unit)
string(REPLACE "/usr/local/bin/" "/usr/bin/" unit "${unit}")
file(WRITE ${made}/user/lockstepd.service "${unit}")
# These go to a package only, not into a prefix: `cmake --install` lays out neither users nor /etc.
foreach(rule "lockstepd.service;lib/systemd/system" "user/lockstepd.service;lib/systemd/user")
  list(GET rule 0 file)
  list(GET rule 1 folder)
  install(FILES ${made}/${file} DESTINATION ${folder} COMPONENT lockstepd EXCLUDE_FROM_ALL)
endforeach()
install(FILES ${packages}/lockstepd.toml DESTINATION /etc/lockstep COMPONENT lockstepd EXCLUDE_FROM_ALL)
install(FILES ${packages}/lockstep.sysusers DESTINATION lib/sysusers.d RENAME lockstep.conf COMPONENT lockstepd EXCLUDE_FROM_ALL)
install(FILES ${packages}/lockstep.tmpfiles DESTINATION lib/tmpfiles.d RENAME lockstep.conf COMPONENT lockstepd EXCLUDE_FROM_ALL)
foreach(package lockstepd lockstep lockstep-agent lockstep-train liblockstep-dev lockstep-node)
  set(component ${package})
  set(copyright ${packages}/copyright)
  if(package STREQUAL "liblockstep-dev")
    set(component devel)
  elseif(package STREQUAL "lockstep-node")
    set(component portable)
    set(copyright ${PROJECT_SOURCE_DIR}/LICENSE)  # whole: other distributions have it nowhere
  endif()
  install(FILES ${copyright} DESTINATION share/doc/${package} RENAME copyright COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR "Lockstep")
set(CPACK_PACKAGE_CONTACT "The Lockstep authors <lockstep@localhost>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
# With DESTDIR, as some files lie outside of the prefix.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/deploy/cmake/package_components.cmake)
set(LOCKSTEP_PACKAGED lockstepd lockstep lockstep-agent devel)
if(TARGET lockstep-train)
  list(APPEND LOCKSTEP_PACKAGED lockstep-train)
endif()
set(CPACK_LOCKSTEP_DEBIAN "${LOCKSTEP_PACKAGED}")
set(CPACK_LOCKSTEP_PORTABLE FALSE)
if(TARGET portable-lockstep)
  set(CPACK_LOCKSTEP_PORTABLE TRUE)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_LOCKSTEPD_PACKAGE_NAME lockstepd)
set(CPACK_DEBIAN_LOCKSTEP_PACKAGE_NAME lockstep)
set(CPACK_DEBIAN_LOCKSTEP-AGENT_PACKAGE_NAME lockstep-agent)
set(CPACK_DEBIAN_LOCKSTEP-TRAIN_PACKAGE_NAME lockstep-train)
set(CPACK_DEBIAN_DEVEL_PACKAGE_NAME liblockstep-dev)
set(CPACK_DEBIAN_DEVEL_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LOCKSTEPD_PACKAGE_RECOMMENDS "lockstep, lockstep-agent, systemd")
set(CPACK_DEBIAN_LOCKSTEP-AGENT_PACKAGE_SUGGESTS "lockstep-train, gdb, python3")
file(WRITE ${made}/conffiles "/etc/lockstep/lockstepd.toml\n")
set(CPACK_DEBIAN_LOCKSTEPD_PACKAGE_CONTROL_EXTRA
    "${packages}/lockstepd/postinst;${packages}/lockstepd/prerm;${packages}/lockstepd/postrm;${made}/conffiles")
set(CPACK_DEBIAN_LOCKSTEP-AGENT_PACKAGE_CONTROL_EXTRA
    "${packages}/lockstep-agent/postinst;${packages}/lockstep-agent/prerm")
set(CPACK_COMPONENT_LOCKSTEPD_DESCRIPTION "Coordinator of training jobs: service, web page, API")
set(CPACK_COMPONENT_LOCKSTEP_DESCRIPTION "Command line of Lockstep: submits, follows and looks at training jobs")
set(CPACK_COMPONENT_LOCKSTEP-AGENT_DESCRIPTION "Agent of Lockstep on a node, with the Python package that ranks find")
set(CPACK_COMPONENT_LOCKSTEP-TRAIN_DESCRIPTION "Trainer of Lockstep's native jobs")
set(CPACK_COMPONENT_DEVEL_DESCRIPTION "Lockstep's library for programs in C and C++")

set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PORTABLE_PACKAGE_NAME lockstep-node)
set(CPACK_RPM_PACKAGE_LICENSE "See /usr/share/doc/lockstep-node/copyright")
set(CPACK_RPM_PORTABLE_PACKAGE_SUMMARY "Lockstep on nodes: agent and command line")
set(CPACK_RPM_PORTABLE_PACKAGE_DESCRIPTION "Lockstep's agent and command line, which need glibc 2.28 and nothing else, and the Python package that ranks find.")
set(CPACK_RPM_PACKAGE_AUTOREQ ON)
set(CPACK_RPM_PACKAGE_RELOCATABLE OFF)
set(CPACK_RPM_SPEC_MORE_DEFINE "%define __strip /bin/true\n%define _build_id_links none\n%define __os_install_post %{nil}")
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
    /usr/share/man /usr/share/man/man1 /usr/share/man/man5 /usr/share/bash-completion /usr/share/bash-completion/completions
    /usr/share/zsh /usr/share/zsh/site-functions /usr/share/fish /usr/share/fish/vendor_completions.d)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_PORTABLE_FILE_NAME lockstep-node-${PROJECT_VERSION}-x86_64)
include(CPack)
