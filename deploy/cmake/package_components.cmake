# CPack reads this once for each of its generators: what goes into Debian's packages, what into the others.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_ALL ${CPACK_LOCKSTEP_DEBIAN})
elseif(NOT CPACK_LOCKSTEP_PORTABLE)
  message(FATAL_ERROR "The portable programs are not built: deploy/install-deps --portable, then cmake and build again")
else()
  set(CPACK_COMPONENTS_ALL portable)
  set(CPACK_STRIP_FILES OFF)  # they are
endif()
