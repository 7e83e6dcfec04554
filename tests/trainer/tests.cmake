levin_test(trainer TORCH COST 40 FILES
  callbacks/batch_size_finder_test.cpp
  callbacks/learning_rate_finder_test.cpp
  callbacks/mixed_batches_test.cpp
  callbacks/recipes_test.cpp
  trainer/auto_requeue_test.cpp
  trainer/batch_sizing_test.cpp
  trainer/checkpoint_search_test.cpp
  trainer/devices_test.cpp
  trainer/evaluation_test.cpp
  trainer/fabric_checkpoint_test.cpp
  trainer/fabric_mistakes_test.cpp
  trainer/fabric_load_test.cpp
  trainer/fabric_module_test.cpp
  trainer/fabric_rows_test.cpp
  trainer/fabric_run_test.cpp
  trainer/fabric_test.cpp
  trainer/fit_test.cpp
  trainer/incomplete_checkpoint_test.cpp
  trainer/init_module_test.cpp
  trainer/left_memory_test.cpp
  trainer/keep_memory_test.cpp
  trainer/logged_metrics_test.cpp
  trainer/loss_weight_test.cpp
  trainer/manual_optimization_test.cpp
  trainer/metric_objects_test.cpp
  trainer/metric_places_test.cpp
  trainer/metrics_test.cpp
  trainer/micro_batching_test.cpp
  trainer/misuse_test.cpp
  trainer/mixed_precision_test.cpp
  trainer/named_batches_test.cpp
  trainer/nonfinite_gradient_test.cpp
  trainer/nonfinite_loss_test.cpp
  trainer/nothing_to_train_test.cpp
  trainer/num_threads_test.cpp
  trainer/odd_folder_test.cpp
  trainer/old_names_test.cpp
  trainer/online_data_test.cpp
  trainer/one_call_fit_test.cpp
  trainer/optimization_test.cpp
  trainer/own_precision_test.cpp
  trainer/param_groups_test.cpp
  trainer/plan_recomputation_test.cpp
  trainer/predict_outputs_test.cpp
  trainer/process_settings_test.cpp
  trainer/replaced_parts_test.cpp
  trainer/resume_test.cpp
  trainer/resumed_length_test.cpp
  trainer/resumed_options_test.cpp
  trainer/run_end_test.cpp
  trainer/run_plan_test.cpp
  trainer/run_records_test.cpp
  trainer/run_reporter_test.cpp
  trainer/run_schedulers_test.cpp
  trainer/running_loader_test.cpp
  trainer/scaled_manual_steps_test.cpp
  trainer/scaled_nan_test.cpp
  trainer/step_output_test.cpp
  trainer/steps_without_index_test.cpp
  trainer/stochastic_depth_test.cpp
  trainer/thread_tuner_test.cpp
  trainer/trainer_test.cpp
  trainer/unregistered_leaves_test.cpp
  trainer/validation_period_test.cpp)
add_dependencies(trainer_test levin_stand_in_nvidia)

# What goes wrong in a user's code and data: the cells of reliability/user_faults.json.
levin_test(user_faults TORCH COST 60 FILES
  reliability/user_data_faults_test.cpp
  reliability/user_faults_test.cpp
  reliability/user_rank_faults_test.cpp
  reliability/user_statuses_test.cpp)

# What a GPU changes in a training, as far as a CPU can tell.
levin_test(gpu_paths TORCH COST 30 FILES
  trainer/backend_settings_test.cpp
  trainer/copy_ahead_test.cpp
  trainer/memory_report_test.cpp
  trainer/record_steps_test.cpp
  trainer/recorded_numbers_test.cpp
  trainer/recorded_batch_test.cpp
  trainer/recorded_evaluation_test.cpp
  trainer/recorded_random_test.cpp
  trainer/replay_agreement_test.cpp
  trainer/step_graph_refusals_test.cpp
  trainer/step_engine_test.cpp
  trainer/step_graph_test.cpp)

# One process on several devices: logical CPU devices stand in for GPUs.
levin_test(several_devices TORCH FILES
  core/module_call_test.cpp
  strategies/data_parallel_test.cpp
  strategies/parallel_apply_test.cpp
  strategies/parallel_backward_test.cpp
  trainer/dp_backward_test.cpp
  trainer/dp_test.cpp
  trainer/model_parallel_test.cpp
  trainer/pipeline_test.cpp)
