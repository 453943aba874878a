//! The functions that are not implemented.
//!
//! | table | what its functions do |
//! | --- | --- |
//! | `rejected` | return the error that they are not available, by name |
//! | `aborting` | end the process with a message that names them |
//! | `ignored` | nothing; they return 0 or NULL |
//! | `inert` | make and free objects that have no effect |
//!
//! The numbers of `rejected` are those of the arguments before `errptr`. The functions of
//! `aborting` read objects that this library never makes.
//!
//! `tests/functions.txt` has the names of all functions; a test compares it with the library.

use crate::exports::{aborting, ignored, rejected};
use crate::inert::{inert, inert_of_program, zero};

rejected! {
    0:
        rocksdb_jemalloc_nodump_allocator_create;
    1:
        rocksdb_pause_background_work rocksdb_continue_background_work
        rocksdb_get_sorted_wal_files rocksdb_get_current_wal_file
        rocksdb_compactionjobinfo_status rocksdb_subcompactionjobinfo_status
        rocksdb_status_ptr_get_error rocksdb_trace_reader_reset rocksdb_trace_reader_close
        rocksdb_replayer_prepare rocksdb_end_trace rocksdb_end_io_trace
        rocksdb_end_block_cache_trace
        rocksdb_compactionservice_scheduleresponse_create_with_status;
    2:
        rocksdb_trace_reader_read rocksdb_replayer_replay
        rocksdb_get_livefiles_storage_info rocksdb_compactionservice_scheduleresponse_create;
    3: rocksdb_get_full_history_ts_low
        rocksdb_block_based_options_set_user_defined_index_factory_from_string
        rocksdb_readoptions_set_table_index_factory_from_string rocksdb_trace_reader_create;
    4:
        rocksdb_increase_full_history_ts_low;
    5:
        rocksdb_writebatch_update_timestamps
        rocksdb_writebatch_wi_update_timestamps rocksdb_start_trace rocksdb_start_io_trace
        rocksdb_start_block_cache_trace
        rocksdb_sstfilewriter_merge rocksdb_sstfilewriter_delete_with_ts
        rocksdb_sstfilewriter_delete_range;
    6:
        rocksdb_delete_with_ts rocksdb_singledelete_with_ts rocksdb_new_default_replayer
        rocksdb_start_block_cache_trace_with_options rocksdb_open_and_compact;
    7:
        rocksdb_delete_cf_with_ts rocksdb_singledelete_cf_with_ts rocksdb_get_with_ts
        rocksdb_sstfilewriter_put_with_ts rocksdb_open_and_compact_with_options;
    8:
        rocksdb_put_with_ts rocksdb_open_and_trim_history rocksdb_get_cf_with_ts
        rocksdb_load_latest_options;
    9:
        rocksdb_put_cf_with_ts rocksdb_compact_files;
    10:
        rocksdb_compact_files_cf;
}

aborting! {
    rocksdb_wal_file_path_name rocksdb_wal_file_log_number rocksdb_wal_file_type
    rocksdb_wal_file_start_sequence rocksdb_wal_file_size_file_bytes rocksdb_wal_files_count
    rocksdb_wal_files_get_wal_file rocksdb_flushjobinfo_cf_id rocksdb_flushjobinfo_cf_name
    rocksdb_flushjobinfo_file_path rocksdb_flushjobinfo_file_number
    rocksdb_flushjobinfo_oldest_blob_file_number rocksdb_flushjobinfo_thread_id
    rocksdb_flushjobinfo_job_id rocksdb_flushjobinfo_triggered_writes_slowdown
    rocksdb_flushjobinfo_triggered_writes_stop rocksdb_flushjobinfo_smallest_seqno
    rocksdb_flushjobinfo_largest_seqno rocksdb_flushjobinfo_flush_reason
    rocksdb_flushjobinfo_blob_compression_type rocksdb_compactionjobinfo_cf_id
    rocksdb_compactionjobinfo_cf_name rocksdb_compactionjobinfo_thread_id
    rocksdb_compactionjobinfo_job_id rocksdb_compactionjobinfo_num_l0_files
    rocksdb_compactionjobinfo_base_input_level rocksdb_compactionjobinfo_output_level
    rocksdb_compactionjobinfo_compaction_reason rocksdb_compactionjobinfo_compression
    rocksdb_compactionjobinfo_blob_compression_type rocksdb_compactionjobinfo_aborted
    rocksdb_subcompactionjobinfo_cf_id rocksdb_subcompactionjobinfo_cf_name
    rocksdb_subcompactionjobinfo_thread_id rocksdb_subcompactionjobinfo_job_id
    rocksdb_subcompactionjobinfo_subcompaction_job_id
    rocksdb_subcompactionjobinfo_base_input_level rocksdb_subcompactionjobinfo_output_level
    rocksdb_subcompactionjobinfo_compaction_reason rocksdb_subcompactionjobinfo_compression
    rocksdb_subcompactionjobinfo_blob_compression_type rocksdb_externalfileingestioninfo_cf_name
    rocksdb_externalfileingestioninfo_external_file_path
    rocksdb_externalfileingestioninfo_internal_file_path
    rocksdb_externalfileingestioninfo_global_seqno rocksdb_memtableinfo_cf_name
    rocksdb_memtableinfo_first_seqno rocksdb_memtableinfo_earliest_seqno
    rocksdb_memtableinfo_num_entries rocksdb_memtableinfo_num_deletes
    rocksdb_memtableinfo_newest_udt rocksdb_compactionjobinfo_input_files_count
    rocksdb_compactionjobinfo_output_files_count rocksdb_compactionjobinfo_elapsed_micros
    rocksdb_compactionjobinfo_num_corrupt_keys rocksdb_compactionjobinfo_input_records
    rocksdb_compactionjobinfo_output_records rocksdb_compactionjobinfo_total_input_bytes
    rocksdb_compactionjobinfo_total_output_bytes rocksdb_compactionjobinfo_num_input_files
    rocksdb_compactionjobinfo_num_input_files_at_output_level rocksdb_writestallinfo_cf_name
    rocksdb_writestallinfo_cur rocksdb_writestallinfo_prev
    rocksdb_table_properties_orig_file_number rocksdb_table_properties_data_size
    rocksdb_table_properties_uncompressed_data_size rocksdb_table_properties_index_size
    rocksdb_table_properties_index_partitions rocksdb_table_properties_top_level_index_size
    rocksdb_table_properties_index_key_is_user_key
    rocksdb_table_properties_index_value_is_delta_encoded
    rocksdb_table_properties_udi_is_primary_index rocksdb_table_properties_filter_size
    rocksdb_table_properties_raw_key_size rocksdb_table_properties_raw_value_size
    rocksdb_table_properties_num_data_blocks
    rocksdb_table_properties_num_data_blocks_compression_rejected
    rocksdb_table_properties_num_data_blocks_compression_bypassed
    rocksdb_table_properties_num_uniform_blocks rocksdb_table_properties_num_entries
    rocksdb_table_properties_num_filter_entries rocksdb_table_properties_num_deletions
    rocksdb_table_properties_num_merge_operands rocksdb_table_properties_num_range_deletions
    rocksdb_table_properties_format_version rocksdb_table_properties_fixed_key_len
    rocksdb_table_properties_column_family_id rocksdb_table_properties_creation_time
    rocksdb_table_properties_oldest_key_time rocksdb_table_properties_newest_key_time
    rocksdb_table_properties_file_creation_time
    rocksdb_table_properties_slow_compression_estimated_data_size
    rocksdb_table_properties_fast_compression_estimated_data_size
    rocksdb_table_properties_external_sst_file_global_seqno_offset
    rocksdb_table_properties_tail_start_offset
    rocksdb_table_properties_user_defined_timestamps_persisted
    rocksdb_table_properties_key_largest_seqno rocksdb_table_properties_key_smallest_seqno
    rocksdb_table_properties_data_block_restart_interval
    rocksdb_table_properties_index_block_restart_interval
    rocksdb_table_properties_separate_key_value_in_data_block rocksdb_table_properties_db_id
    rocksdb_table_properties_db_session_id rocksdb_table_properties_db_host_id
    rocksdb_table_properties_column_family_name rocksdb_table_properties_filter_policy_name
    rocksdb_table_properties_comparator_name rocksdb_table_properties_merge_operator_name
    rocksdb_table_properties_prefix_extractor_name
    rocksdb_table_properties_property_collectors_names rocksdb_table_properties_compression_name
    rocksdb_table_properties_compression_options rocksdb_table_properties_seqno_to_time_mapping
    rocksdb_compaction_job_stats_elapsed_micros rocksdb_compaction_job_stats_cpu_micros
    rocksdb_compaction_job_stats_has_accurate_num_input_records
    rocksdb_compaction_job_stats_num_input_records rocksdb_compaction_job_stats_num_blobs_read
    rocksdb_compaction_job_stats_num_input_files
    rocksdb_compaction_job_stats_num_input_files_trivially_moved
    rocksdb_compaction_job_stats_num_input_files_at_output_level
    rocksdb_compaction_job_stats_num_filtered_input_files
    rocksdb_compaction_job_stats_num_filtered_input_files_at_output_level
    rocksdb_compaction_job_stats_num_output_records rocksdb_compaction_job_stats_num_output_files
    rocksdb_compaction_job_stats_num_output_files_blob
    rocksdb_compaction_job_stats_is_full_compaction
    rocksdb_compaction_job_stats_is_manual_compaction
    rocksdb_compaction_job_stats_is_remote_compaction
    rocksdb_compaction_job_stats_total_input_bytes
    rocksdb_compaction_job_stats_total_blob_bytes_read
    rocksdb_compaction_job_stats_total_output_bytes
    rocksdb_compaction_job_stats_total_output_bytes_blob
    rocksdb_compaction_job_stats_total_skipped_input_bytes
    rocksdb_compaction_job_stats_num_records_replaced
    rocksdb_compaction_job_stats_total_input_raw_key_bytes
    rocksdb_compaction_job_stats_total_input_raw_value_bytes
    rocksdb_compaction_job_stats_num_input_deletion_records
    rocksdb_compaction_job_stats_num_expired_deletion_records
    rocksdb_compaction_job_stats_num_corrupt_keys rocksdb_compaction_job_stats_file_write_nanos
    rocksdb_compaction_job_stats_file_range_sync_nanos
    rocksdb_compaction_job_stats_file_fsync_nanos
    rocksdb_compaction_job_stats_file_prepare_write_nanos
    rocksdb_compaction_job_stats_smallest_output_key_prefix
    rocksdb_compaction_job_stats_largest_output_key_prefix
    rocksdb_compaction_job_stats_num_single_del_fallthru
    rocksdb_compaction_job_stats_num_single_del_mismatch rocksdb_compaction_file_info_level
    rocksdb_compaction_file_info_file_number rocksdb_compaction_file_info_oldest_blob_file_number
    rocksdb_blob_file_addition_info_blob_file_path
    rocksdb_blob_file_addition_info_blob_file_number
    rocksdb_blob_file_addition_info_total_blob_count
    rocksdb_blob_file_addition_info_total_blob_bytes
    rocksdb_blob_file_garbage_info_blob_file_path rocksdb_blob_file_garbage_info_blob_file_number
    rocksdb_blob_file_garbage_info_garbage_blob_count
    rocksdb_blob_file_garbage_info_garbage_blob_bytes
    rocksdb_table_properties_has_key_largest_seqno
    rocksdb_table_properties_has_key_smallest_seqno
    rocksdb_table_properties_user_collected_properties_count
    rocksdb_table_properties_user_collected_properties_key_at
    rocksdb_table_properties_user_collected_properties_value_at
    rocksdb_table_properties_readable_properties_count
    rocksdb_table_properties_readable_properties_key_at
    rocksdb_table_properties_readable_properties_value_at rocksdb_flushjobinfo_table_properties
    rocksdb_flushjobinfo_blob_file_addition_infos_count
    rocksdb_flushjobinfo_blob_file_addition_info_at rocksdb_compactionjobinfo_input_file_at
    rocksdb_compactionjobinfo_output_file_at rocksdb_compactionjobinfo_stats
    rocksdb_compactionjobinfo_input_file_infos_count rocksdb_compactionjobinfo_input_file_info_at
    rocksdb_compactionjobinfo_output_file_infos_count
    rocksdb_compactionjobinfo_output_file_info_at
    rocksdb_compactionjobinfo_table_properties_count
    rocksdb_compactionjobinfo_table_properties_key_at
    rocksdb_compactionjobinfo_table_properties_value_at
    rocksdb_compactionjobinfo_table_properties_for_file
    rocksdb_compactionjobinfo_blob_file_addition_infos_count
    rocksdb_compactionjobinfo_blob_file_addition_info_at
    rocksdb_compactionjobinfo_blob_file_garbage_infos_count
    rocksdb_compactionjobinfo_blob_file_garbage_info_at rocksdb_subcompactionjobinfo_stats
    rocksdb_externalfileingestioninfo_table_properties rocksdb_replayer_get_header_timestamp
    rocksdb_livefiles_storage_info_count
    rocksdb_livefiles_storage_info_relative_filename rocksdb_livefiles_storage_info_directory
    rocksdb_livefiles_storage_info_file_number rocksdb_livefiles_storage_info_file_type
    rocksdb_livefiles_storage_info_size rocksdb_livefiles_storage_info_temperature
    rocksdb_livefiles_storage_info_file_checksum
    rocksdb_livefiles_storage_info_file_checksum_func_name
    rocksdb_livefiles_storage_info_replacement_contents
    rocksdb_livefiles_storage_info_trim_to_size
    rocksdb_compactionservice_scheduleresponse_getstatus
    rocksdb_compactionservice_scheduleresponse_get_scheduled_job_id
    rocksdb_compactionservice_jobinfo_t_get_db_name rocksdb_compactionservice_jobinfo_t_get_db_id
    rocksdb_compactionservice_jobinfo_t_get_db_session_id
    rocksdb_compactionservice_jobinfo_t_get_cf_name rocksdb_compactionservice_jobinfo_t_get_cf_id
    rocksdb_compactionservice_jobinfo_t_get_job_id
    rocksdb_compactionservice_jobinfo_t_get_priority
    rocksdb_compactionservice_jobinfo_t_get_compaction_reason
    rocksdb_compactionservice_jobinfo_t_get_base_input_level
    rocksdb_compactionservice_jobinfo_t_get_output_level
    rocksdb_compactionservice_jobinfo_t_is_full_compaction
    rocksdb_compactionservice_jobinfo_t_is_manual_compaction
    rocksdb_compactionservice_jobinfo_t_is_bottommost_level
}

ignored! {
    rocksdb_compact_files_output_file_names_destroy
    rocksdb_wal_file_destroy rocksdb_wal_files_destroy rocksdb_load_latest_options_destroy
    rocksdb_block_based_options_clear_user_defined_index_factory
    rocksdb_block_based_options_get_user_defined_index_factory_name
    rocksdb_options_set_write_buffer_manager rocksdb_options_set_sst_file_manager
    rocksdb_reset_status rocksdb_options_add_eventlistener
    rocksdb_options_set_cuckoo_table_factory rocksdb_options_set_wal_filter
    rocksdb_options_clear_wal_filter rocksdb_options_set_db_paths rocksdb_options_set_cf_paths
    rocksdb_options_set_info_log rocksdb_options_get_info_log
    rocksdb_file_checksum_gen_factory_destroy rocksdb_options_set_file_checksum_gen_factory
    rocksdb_options_checksum_handoff_file_types_clear
    rocksdb_options_checksum_handoff_file_types_add
    rocksdb_options_checksum_handoff_file_types_remove
    rocksdb_options_checksum_handoff_file_types_contains
    rocksdb_options_checksum_handoff_file_types_count
    rocksdb_options_calculate_sst_write_lifetime_hint_set_clear
    rocksdb_options_calculate_sst_write_lifetime_hint_set_add
    rocksdb_options_calculate_sst_write_lifetime_hint_set_remove
    rocksdb_options_calculate_sst_write_lifetime_hint_set_contains
    rocksdb_options_calculate_sst_write_lifetime_hint_set_count
    rocksdb_sst_partitioner_factory_destroy rocksdb_options_set_sst_partitioner_factory
    rocksdb_table_properties_collector_factory_destroy
    rocksdb_options_add_table_properties_collector_factory
    rocksdb_options_set_bottommost_compression_options_zstd_max_train_bytes
    rocksdb_options_set_bottommost_compression_options_max_dict_buffer_bytes
    rocksdb_options_set_max_bytes_for_level_multiplier_additional rocksdb_options_set_blob_cache
    rocksdb_options_prepare_for_bulk_load rocksdb_options_set_memtable_vector_rep
    rocksdb_options_set_hash_skip_list_rep rocksdb_options_set_plain_table_factory
    rocksdb_options_set_universal_compaction_options rocksdb_options_set_fifo_compaction_options
    rocksdb_options_set_ratelimiter rocksdb_options_set_row_cache
    rocksdb_options_add_compact_on_deletion_collector_factory
    rocksdb_options_add_compact_on_deletion_collector_factory_del_ratio
    rocksdb_options_add_compact_on_deletion_collector_factory_min_file_size
    rocksdb_set_perf_level rocksdb_perfcontext_reset rocksdb_perfcontext_metric
    rocksdb_readoptions_set_request_id rocksdb_readoptions_clear_request_id
    rocksdb_readoptions_get_request_id rocksdb_readoptions_clear_table_index_factory
    rocksdb_readoptions_get_table_index_factory_name rocksdb_compaction_options_canceled_set
    rocksdb_compaction_options_set_canceled rocksdb_compactoptions_set_full_history_ts_low
    rocksdb_memory_allocator_destroy rocksdb_lru_cache_options_set_memory_allocator
    rocksdb_write_buffer_manager_cost_to_cache rocksdb_write_buffer_manager_memory_usage
    rocksdb_write_buffer_manager_mutable_memtable_memory_usage
    rocksdb_write_buffer_manager_dummy_entries_in_cache_usage
    rocksdb_write_buffer_manager_set_allow_stall
    rocksdb_sst_file_manager_set_max_allowed_space_usage
    rocksdb_sst_file_manager_set_compaction_buffer_size
    rocksdb_sst_file_manager_is_max_allowed_space_reached
    rocksdb_sst_file_manager_is_max_allowed_space_reached_including_compactions
    rocksdb_sst_file_manager_get_total_size
    rocksdb_sst_file_manager_get_delete_rate_bytes_per_second
    rocksdb_sst_file_manager_set_delete_rate_bytes_per_second
    rocksdb_sst_file_manager_set_max_trash_db_ratio rocksdb_sst_file_manager_get_total_trash_size
    rocksdb_hyper_clock_cache_options_set_memory_allocator rocksdb_envoptions_set_rate_limiter
    rocksdb_replayer_destroy rocksdb_livefiles_storage_info_destroy
    rocksdb_column_family_metadata_options_set_start_key
    rocksdb_column_family_metadata_options_get_start_key
    rocksdb_column_family_metadata_options_set_end_key
    rocksdb_column_family_metadata_options_get_end_key
    rocksdb_optimistictransactiondb_lock_buckets_approximate_memory_usage
    rocksdb_optimistictransactiondb_options_set_shared_lock_buckets
    rocksdb_compactionservice_scheduleresponse_t_destroy rocksdb_options_set_compaction_service
    rocksdb_compaction_service_options_override_set_env
    rocksdb_compaction_service_options_override_set_comparator
    rocksdb_compaction_service_options_override_set_merge_operator
    rocksdb_compaction_service_options_override_set_compaction_filter
    rocksdb_compaction_service_options_override_set_compaction_filter_factory
    rocksdb_compaction_service_options_override_set_prefix_extractor
    rocksdb_compaction_service_options_override_set_block_based_table_factory
    rocksdb_compaction_service_options_override_set_cuckoo_table_factory
    rocksdb_compaction_service_options_override_add_event_listener
    rocksdb_compaction_service_options_override_set_statistics
    rocksdb_compaction_service_options_override_set_info_log
    rocksdb_compaction_service_options_override_set_option
    rocksdb_compaction_service_options_override_set_file_checksum_gen_factory
    rocksdb_compaction_service_options_override_set_sst_partitioner_factory
    rocksdb_compaction_service_options_override_add_table_properties_collector_factory
    rocksdb_open_and_compact_canceled_set rocksdb_open_and_compact_options_set_canceled
}

inert! {
    create:
        rocksdb_compactionjobinfo_create rocksdb_logger_create_stderr_logger
        rocksdb_logger_create_callback_logger rocksdb_file_checksum_gen_crc32c_factory_create
        rocksdb_sst_partitioner_fixed_prefix_factory_create rocksdb_ratelimiter_create
        rocksdb_ratelimiter_create_auto_tuned rocksdb_ratelimiter_create_with_mode
        rocksdb_perfcontext_create rocksdb_compaction_options_canceled_create
        rocksdb_sst_file_manager_create rocksdb_dbpath_create
        rocksdb_column_family_metadata_options_create
        rocksdb_optimistictransactiondb_lock_buckets_create
        rocksdb_compaction_service_options_override_create
        rocksdb_compaction_service_options_override_create_from_options
        rocksdb_open_and_compact_canceled_create;
    destroy:
        rocksdb_compactionjobinfo_destroy rocksdb_logger_destroy rocksdb_ratelimiter_destroy
        rocksdb_perfcontext_destroy rocksdb_compaction_options_canceled_destroy
        rocksdb_sst_file_manager_destroy rocksdb_dbpath_destroy rocksdb_trace_reader_destroy
        rocksdb_column_family_metadata_options_destroy
        rocksdb_optimistictransactiondb_lock_buckets_destroy
        rocksdb_compaction_service_options_override_destroy
        rocksdb_open_and_compact_canceled_destroy;
}

inert_of_program! {
    create:
        rocksdb_eventlistener_create rocksdb_walfilter_create rocksdb_compactionservice_create;
    destroy:
        rocksdb_eventlistener_destroy rocksdb_walfilter_destroy;
}

zero! {
    rocksdb_sst_file_manager_get_max_trash_db_ratio
}
