levin_test(recompute TORCH FILES
  recompute/chain_figures_test.cpp
  recompute/chain_plan_test.cpp
  recompute/kept_results_test.cpp
  recompute/memory_meter_test.cpp
  recompute/recompute_changes_test.cpp
  recompute/recompute_sequential_test.cpp
  recompute/recompute_test.cpp
  recompute/segment_names_test.cpp
  trainer/recomputation_test.cpp)
