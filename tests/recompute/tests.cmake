levin_test(recompute TORCH FILES
  recompute/kept_results_test.cpp
  recompute/recompute_changes_test.cpp
  recompute/recompute_sequential_test.cpp
  recompute/recompute_test.cpp
  trainer/recomputation_test.cpp
  recompute/segment_names_test.cpp)

levin_test(chain_plan FILES
  recompute/chain_plan_test.cpp)

levin_test(chain_figures TORCH FILES
  recompute/chain_figures_test.cpp
  recompute/memory_meter_test.cpp)
