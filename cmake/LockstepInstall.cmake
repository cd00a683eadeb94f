# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: the program, one library, the headers, and a CMake package that offers
# lockstep::lockstep. The module libraries are merged into one archive, with the Rust bridge in it,
# so that a consumer links one file and needs neither our build tree nor a Rust tool chain.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY LOCKSTEP_MODULES)
set(inputs "")
set(bridge_build "")
if(TARGET lockstep_bridge)
  get_target_property(inputs lockstep_bridge IMPORTED_LOCATION)
  set(bridge_build lockstep_bridge_build)
endif()
foreach(module ${modules})
  list(APPEND inputs $<TARGET_FILE:${module}>)
endforeach()
set(merged ${PROJECT_BINARY_DIR}/lib/liblockstep.a)
add_custom_command(
  OUTPUT ${merged}
  COMMAND ${CMAKE_COMMAND} -D AR=${CMAKE_AR} -D OUTPUT=${merged} "-DINPUTS=${inputs}"
    -P ${PROJECT_SOURCE_DIR}/cmake/MergeArchives.cmake
  DEPENDS ${modules} ${bridge_build} ${inputs} ${PROJECT_SOURCE_DIR}/cmake/MergeArchives.cmake
  COMMENT "Merging the modules into liblockstep.a"
  VERBATIM)
add_custom_target(lockstep_merged ALL DEPENDS ${merged})
install(FILES ${merged} DESTINATION ${CMAKE_INSTALL_LIBDIR})

if(TARGET lockstep)
  install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE)
install(FILES LICENSE NOTICE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
  ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake DESTINATION ${package_dir})
