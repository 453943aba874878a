//! The options of databases and column families that are numbers: see [`scalars`](crate::scalars).

use crate::options::Options;
use crate::scalars::scalars;

scalars!(Options, "rocksdb_options", NAMES {
    [u8]:
        block_protection_bytes_per_key,
        allow_ingest_behind, create_if_missing, create_missing_column_families,
        error_if_exists, paranoid_checks = 1, open_files_async,
        compression_options_use_zstd_dict_trainer = 1, level_compaction_dynamic_level_bytes = 1,
        skip_stats_update_on_db_open, enable_blob_files, enable_blob_gc,
        enable_pipelined_write, unordered_write, allow_mmap_reads, allow_mmap_writes,
        use_direct_reads, use_direct_io_for_flush_and_compaction, is_fd_close_on_exec = 1,
        advise_random_on_open = 1, use_adaptive_mutex, allow_concurrent_memtable_write = 1,
        enable_write_thread_adaptive_yield = 1, write_dbid_to_manifest = 1, write_identity_file = 1,
        track_and_verify_wals_in_manifest, inplace_update_support,
        avoid_unnecessary_blocking_io, atomic_flush, manual_wal_flush, dump_malloc_stats,
        memtable_whole_key_filtering, flush_verify_memtable_count,
        compaction_verify_record_count, track_and_verify_wals,
        verify_sst_unique_id_in_manifest, async_wal_precreate,
        verify_manifest_content_on_close, optimize_manifest_for_recovery,
        reuse_manifest_on_open, use_direct_io_for_compaction_reads, allow_fallocate,
        persist_stats_to_disk, strict_bytes_per_sync, enable_thread_tracking, allow_2pc,
        avoid_flush_during_recovery, enforce_write_buffer_manager_during_recovery,
        avoid_flush_during_shutdown, two_write_queues, background_close_inactive_wals,
        prefix_seek_opt_in_only, best_efforts_recovery, allow_data_in_errors,
        enforce_single_del_contracts, fast_sst_open, target_file_size_is_upper_bound,
        strict_max_successive_merges, paranoid_file_checks, force_consistency_checks,
        disallow_memtable_writes, enable_blob_direct_write, persist_user_defined_timestamps,
        paranoid_memory_checks, memtable_verify_per_key_checksum_on_seek,
        cf_allow_ingest_behind, memtable_batch_lookup_optimization;
    [i32]:
        info_log_level = 1, max_open_files = -1, max_file_opening_threads = 16,
        compression_options_zstd_max_train_bytes, compression_options_parallel_threads = 1,
        num_levels = 7, level0_file_num_compaction_trigger = 4,
        level0_slowdown_writes_trigger = 20, level0_stop_writes_trigger = 36,
        target_file_size_multiplier = 1, statistics_level = 3, blob_compression_type,
        blob_file_starting_level, prepopulate_blob_cache, max_write_buffer_number = 2,
        min_write_buffer_number_to_merge = 1, max_background_jobs = 2,
        max_background_compactions = -1, max_background_flushes = -1,
        table_cache_numshardbits = 6, use_fsync, wal_recovery_mode = 2, compression = 1,
        bottommost_compression = 255, compaction_style, wal_compression, compaction_pri = 3,
        read_io_executor_threads, max_manifest_space_amp_pct, max_bgerror_resume_count,
        lowest_used_cache_tier, metadata_write_temperature, wal_write_temperature,
        verify_output_flags, last_level_temperature, default_write_temperature,
        default_temperature;
    [usize]:
        write_buffer_size = 67108864, db_write_buffer_size, max_log_file_size,
        log_file_time_to_roll, keep_log_file_num = 1000, recycle_log_file_num,
        soft_pending_compaction_bytes_limit = 68719476736,
        hard_pending_compaction_bytes_limit = 274877906944,
        max_manifest_file_size = 1073741824, arena_block_size, manifest_preallocation_size = 4194304,
        memtable_huge_page_size, max_successive_merges, inplace_update_num_locks = 10000,
        stats_history_buffer_size, log_readahead_size;
    [u64]:
        max_total_wal_size, compression_options_max_dict_buffer_bytes,
        target_file_size_base = 67108864, max_bytes_for_level_base = 268435456, ttl = 0xffff_ffff_ffff_fffe_u64,
        periodic_compaction_seconds = 0xffff_ffff_ffff_fffe_u64, min_blob_size, blob_file_size = 268435456,
        max_compaction_trigger_wakeup_seconds, blob_compaction_readahead_size,
        WAL_ttl_seconds, WAL_size_limit_MB, bytes_per_sync, wal_bytes_per_sync,
        writable_file_max_buffer_size = 1048576, max_sequential_skip_in_iterations = 8,
        delete_obsolete_files_period_micros = 21600000000, max_compaction_bytes,
        delayed_write_rate, max_write_batch_group_size_bytes, write_thread_max_yield_usec,
        write_thread_slow_yield_usec, bgerror_resume_retry_interval,
        follower_refresh_catchup_period_ms, follower_catchup_retry_count,
        follower_catchup_retry_wait_ms, sample_for_compression,
        preclude_last_level_data_seconds, preserve_internal_time_seconds;
    [f64]:
        max_bytes_for_level_multiplier = 10.0, blob_gc_age_cutoff = 0.25,
        blob_gc_force_threshold = 1.0, read_triggered_compaction_threshold,
        memtable_prefix_bloom_size_ratio, experimental_mempurge_threshold = 0.0;
    [u32]:
        memtable_op_scan_flush_trigger, memtable_avg_op_scan_flush_trigger,
        min_tombstones_for_range_conversion, max_subcompactions = 1, bloom_locality,
        blob_direct_write_partitions, memtable_protection_bytes_per_key,
        bottommost_file_compaction_delay, memtable_max_range_deletions,
        uncache_aggressiveness;
    [i64]:
        max_write_buffer_size_to_maintain;
    [u32]:
        stats_dump_period_sec = 600, stats_persist_period_sec = 600;
    [i32 as u8]:
        disable_auto_compactions, optimize_filters_for_hits, report_bg_io_stats;
    [set usize]:
        hash_link_list_rep;
    [set i32]:
        min_level_to_compress;
    [get usize]:
        compaction_readahead_size = 2097152;
    [get u8]:
        bottommost_compression_options_use_zstd_dict_trainer = 1;
});
