# Run by `cmake --install`, with `torch` (LibTorch's folder) and `remedy` set: warns if other users can read the installed
# files, but not the LibTorch that they load.
function(closed_to_others path result)
  set(${result} "" PARENT_SCOPE)
  while(EXISTS "${path}")
    execute_process(COMMAND find "${path}" -maxdepth 0 -not -perm -o=x OUTPUT_VARIABLE closed ERROR_QUIET
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    get_filename_component(parent "${path}" DIRECTORY)
    if(closed OR parent STREQUAL path)
      set(${result} "${closed}" PARENT_SCOPE)
      return()
    endif()
    set(path "${parent}")
  endwhile()
endfunction()

closed_to_others("${torch}" closed_torch)
closed_to_others("$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}" closed_prefix)
if(closed_torch AND NOT closed_prefix)
  message(WARNING "Other users cannot start what was installed in ${CMAKE_INSTALL_PREFIX}: LibTorch is in ${torch}, and "
    "they have no access to ${closed_torch}. For an install for all users, run as root: ${remedy} && ./dev build, "
    "then install again.")
endif()
