//! The options of reads, writes, files, backups, transactions, and other calls that are numbers:
//! see [`scalars`](crate::scalars).

use crate::backups::BackupEngineOptions;
use crate::options::BlockBasedOptions;
use crate::read_options::ReadOptions;
use crate::scalars::{Plain, plain_options, scalars};

scalars!(Plain, "rocksdb_wal_readoptions" {
    [u8]:
        verify_checksums;
});

scalars!(BlockBasedOptions, "rocksdb_block_based_options" {
    [set f64]:
        data_block_hash_ratio;
    [set i32]:
        top_level_index_pinning_tier, partition_pinning_tier, unpartitioned_pinning_tier;
    [u8]:
        cache_index_and_filter_blocks, cache_index_and_filter_blocks_with_high_priority,
        pin_l0_filter_and_index_blocks_in_cache, pin_top_level_index_and_filter,
        no_block_cache, partition_filters, decouple_partitioned_filters,
        optimize_filters_for_memory, use_delta_encoding, use_udi_as_primary_index,
        fail_if_no_udi_on_open, whole_key_filtering = 1, detect_filter_construct_corruption,
        verify_compression, separate_key_value_in_data_block, enable_index_compression,
        block_align;
    [i32]:
        index_type, index_block_search_type, data_block_index_type,
        block_size_deviation = 10, block_restart_interval = 16,
        index_block_restart_interval = 1, index_shortening, prepopulate_block_cache;
    [f64]:
        data_block_hash_table_util_ratio, uniform_cv_threshold;
    [usize as u64]:
        block_size = 4096;
    [u64]:
        metadata_block_size = 4096, num_file_reads_for_auto_readahead;
    [u32]:
        read_amp_bytes_per_bit;
    [i32 as u32]:
        format_version = 7;
    [usize]:
        super_block_alignment_size, super_block_alignment_space_overhead_ratio,
        max_auto_readahead_size, initial_auto_readahead_size;
    [i8 as i32]:
        checksum = 4;
});

scalars!(Plain, "rocksdb_cuckoo_options" {
    [set f64]:
        hash_ratio = 0.9;
    [f64]:
        hash_table_ratio = 0.9;
    [u32]:
        max_search_depth = 100, cuckoo_block_size = 5;
    [u8]:
        identity_as_first_hash, use_module_hash = 1;
});

scalars!(ReadOptions, "rocksdb_readoptions" {
    [u64]:
        deadline, io_timeout, value_size_soft_limit, max_skippable_internal_keys;
    [i32]:
        read_tier, rate_limiter_priority, io_activity;
    [u8]:
        verify_checksums = 1, fill_cache = 1, ignore_range_deletions, async_io,
        optimize_multiget_for_io, tailing, total_order_seek, auto_prefix_mode,
        prefix_same_as_start, pin_data, adaptive_readahead,
        background_purge_on_iterator_cleanup, auto_readahead_size = 1,
        allow_unprepared_value, auto_refresh_iterator_with_snapshot;
    [usize]:
        readahead_size, merge_operand_count_threshold;
});

scalars!(Plain, "rocksdb_compactoptions" {
    [u8]:
        exclusive_manual_compaction, bottommost_level_compaction = 1, change_level,
        allow_write_stall;
    [i32]:
        target_level = -1, target_path_id, max_subcompactions,
        blob_garbage_collection_policy;
    [f64]:
        blob_garbage_collection_age_cutoff;
});

scalars!(Plain, "rocksdb_lru_cache_options" {
    [set usize]:
        capacity;
    [set i32]:
        num_shard_bits;
});

scalars!(Plain, "rocksdb_hyper_clock_cache_options" {
    [set usize]:
        capacity, estimated_entry_charge;
    [set i32]:
        num_shard_bits;
});

scalars!(Plain, "rocksdb_replay_options" {
    [u32]:
        num_threads;
    [f64]:
        fast_forward;
});

scalars!(Plain, "rocksdb_ingestexternalfileoptions" {
    [u8]:
        move_files, snapshot_consistency = 1, allow_global_seqno = 1,
        allow_blocking_flush = 1, ingest_behind, fail_if_not_bottommost_level, link_files,
        failed_move_fall_back_to_copy = 1, write_global_seqno,
        verify_checksums_before_ingest, verify_file_checksum = 1, allow_db_generated_files,
        fill_cache = 1, prefetch_lmax_index_and_filter_blocks;
    [usize]:
        verify_checksums_readahead_size;
    [i32]:
        file_opening_threads = 1;
});

scalars!(Plain, "rocksdb_universal_compaction_options" {
    [i32]:
        size_ratio = 1, min_merge_width = 2, max_merge_width = 2147483647,
        max_size_amplification_percent = 200, compression_size_percent = -1, stop_style,
        max_read_amp;
    [u8]:
        allow_trivial_move, incremental, reduce_file_locking;
});

scalars!(Plain, "rocksdb_fifo_compaction_options" {
    [u8]:
        allow_compaction, use_kv_ratio_compaction,
        allow_trivial_copy_when_change_temperature;
    [u64]:
        max_table_files_size = 1073741824, max_data_files_size, age_for_warm,
        trivial_copy_buffer_size;
});

scalars!(Plain, "rocksdb_import_column_family_options" {
    [u8]:
        move_files;
});

scalars!(Plain, "rocksdb_wait_for_compact_options" {
    [u8]:
        abort_on_pause, flush, close_db, wait_for_purge;
    [u64]:
        timeout;
});

scalars!(Plain, "rocksdb_open_and_compact_options" {
    [u8]:
        allow_resumption;
});

scalars!(Plain, "rocksdb_writeoptions" {
    [u8]:
        sync, ignore_missing_column_families, no_slowdown, low_pri,
        memtable_insert_hint_per_batch;
    [i32]:
        rate_limiter_priority, io_activity;
    [usize]:
        protection_bytes_per_key;
});

scalars!(Plain, "rocksdb_flushoptions" {
    [u8]:
        wait = 1, allow_write_stall, force_atomic_flush, listener_wait;
});

scalars!(Plain, "rocksdb_flushwaloptions" {
    [u8]:
        sync;
    [i32]:
        rate_limiter_priority;
});

scalars!(Plain, "rocksdb_envoptions" {
    [u8]:
        use_mmap_reads, use_mmap_writes = 1, use_direct_reads, use_direct_writes,
        allow_fallocate = 1, fd_cloexec = 1, strict_bytes_per_sync,
        fallocate_with_keep_size = 1;
    [u64]:
        bytes_per_sync;
    [usize]:
        compaction_readahead_size, writable_file_max_buffer_size;
});

scalars!(Plain, "rocksdb_trace_options" {
    [u64]:
        max_trace_file_size, sampling_frequency, filter;
    [u8]:
        preserve_write_order;
});

scalars!(Plain, "rocksdb_block_cache_trace_options" {
    [u64]:
        sampling_frequency;
});

scalars!(Plain, "rocksdb_block_cache_trace_writer_options" {
    [u64]:
        max_trace_file_size;
});

scalars!(Plain, "rocksdb_compaction_options" {
    [i32]:
        compression, output_temperature_override;
    [u64]:
        output_file_size_limit;
    [u32]:
        max_subcompactions;
    [u8]:
        allow_trivial_move;
});

scalars!(Plain, "rocksdb_size_approximation_options" {
    [u8]:
        include_memtables, include_files = 1, include_blob_files;
    [f64]:
        files_size_error_margin = -1.0;
});

scalars!(Plain, "rocksdb_livefiles_storage_info_options" {
    [u8]:
        include_checksum_info, atomic_flush;
    [u64]:
        wal_size_for_flush;
});

scalars!(Plain, "rocksdb_column_family_metadata_options" {
    [i32]:
        level;
});

scalars!(BackupEngineOptions, "rocksdb_backup_engine_options" {
    [u64]:
        io_buffer_size, backup_rate_limit, restore_rate_limit,
        callback_trigger_interval_size = 4194304;
    [i32]:
        max_background_operations = 1, max_valid_backups_to_open = 2147483647,
        share_files_with_checksum_naming = 0x8000_0002_u32, schema_version = 1;
    [u8]:
        share_table_files = 1, sync = 1, destroy_old_data, backup_log_files = 1,
        share_files_with_checksum = 1, current_temperatures_override_manifest;
});

scalars!(Plain, "rocksdb_create_backup_options" {
    [u8]:
        decrease_background_thread_cpu_priority, flush_before_backup, atomic_flush;
    [i32]:
        background_thread_cpu_priority;
});

scalars!(Plain, "rocksdb_restore_options" {
    [i32 as u8]:
        keep_log_files;
    [i32]:
        mode;
});

scalars!(Plain, "rocksdb_transactiondb_options" {
    [i64]:
        max_num_locks = -1, transaction_lock_timeout = 1000, default_lock_timeout = 1000,
        default_write_batch_flush_threshold;
    [u32]:
        max_num_deadlocks = 5, txn_commit_bypass_memtable_threshold;
    [usize]:
        num_stripes = 16;
    [i32]:
        write_policy;
    [u8]:
        rollback_merge_operands, use_per_key_point_lock_mgr, skip_concurrency_control,
        enable_udt_validation;
});

scalars!(Plain, "rocksdb_transaction_options" {
    [u8]:
        set_snapshot, deadlock_detect, use_only_the_last_commit_time_batch_for_recovery,
        skip_concurrency_control, skip_prepare, write_batch_track_timestamp_size,
        commit_bypass_memtable;
    [i64]:
        lock_timeout = -1, deadlock_timeout_us, expiration = -1, deadlock_detect_depth = 50,
        write_batch_flush_threshold;
    [usize]:
        max_write_batch_size;
    [u32]:
        large_txn_commit_optimize_threshold;
    [u64]:
        large_txn_commit_optimize_byte_threshold;
});

scalars!(Plain, "rocksdb_optimistictransaction_options" {
    [u8]:
        set_snapshot;
});

scalars!(Plain, "rocksdb_optimistictransactiondb_options" {
    [i32]:
        validate_policy;
    [u32]:
        occ_lock_buckets;
});

plain_options! {
    rocksdb_create_backup_options_create rocksdb_create_backup_options_destroy;
    rocksdb_restore_options_create rocksdb_restore_options_destroy;
    rocksdb_size_approximation_options_create rocksdb_size_approximation_options_destroy;
    rocksdb_wal_readoptions_create rocksdb_wal_readoptions_destroy;
    rocksdb_cuckoo_options_create rocksdb_cuckoo_options_destroy;
    rocksdb_writeoptions_create rocksdb_writeoptions_destroy;
    rocksdb_compaction_options_create rocksdb_compaction_options_destroy;
    rocksdb_compactoptions_create rocksdb_compactoptions_destroy;
    rocksdb_flushoptions_create rocksdb_flushoptions_destroy;
    rocksdb_flushwaloptions_create rocksdb_flushwaloptions_destroy;
    rocksdb_lru_cache_options_create rocksdb_lru_cache_options_destroy;
    rocksdb_envoptions_create rocksdb_envoptions_destroy;
    rocksdb_trace_options_create rocksdb_trace_options_destroy;
    rocksdb_replay_options_create rocksdb_replay_options_destroy;
    rocksdb_block_cache_trace_options_create rocksdb_block_cache_trace_options_destroy;
    rocksdb_block_cache_trace_writer_options_create rocksdb_block_cache_trace_writer_options_destroy;
    rocksdb_ingestexternalfileoptions_create rocksdb_ingestexternalfileoptions_destroy;
    rocksdb_universal_compaction_options_create rocksdb_universal_compaction_options_destroy;
    rocksdb_fifo_compaction_options_create rocksdb_fifo_compaction_options_destroy;
    rocksdb_livefiles_storage_info_options_create rocksdb_livefiles_storage_info_options_destroy;
    rocksdb_import_column_family_options_create rocksdb_import_column_family_options_destroy;
    rocksdb_transactiondb_options_create rocksdb_transactiondb_options_destroy;
    rocksdb_transaction_options_create rocksdb_transaction_options_destroy;
    rocksdb_optimistictransaction_options_create rocksdb_optimistictransaction_options_destroy;
    rocksdb_optimistictransactiondb_options_create rocksdb_optimistictransactiondb_options_destroy;
    rocksdb_wait_for_compact_options_create rocksdb_wait_for_compact_options_destroy;
    rocksdb_open_and_compact_options_create rocksdb_open_and_compact_options_destroy;
}
