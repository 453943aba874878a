//! Moves the filters of a container to a BloomCluster when filters exceed their memory limit.
//!
//! Filters with as many columns as the cluster are used as they are: those of all tables of full
//! size. For other tables they are rebuilt from the items, which costs reading the table. The
//! filters in memory are dropped when the cluster is installed. A table that is added to the
//! container later keeps its filter in memory until memory is short again, so that a cluster is not
//! rewritten per table.
//!
//! Invariant: until then lookups use the filters in memory; afterwards they use the cluster.
//!
//! Source: LSM-trie paper, section 2.4.3.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{FileInfo, Purpose, Result};

use crate::cluster::Cluster;
use crate::container_id::ContainerId;
use crate::engine::Tree;
use crate::files::Kind;
use crate::htable::{Filter, FilterBuilder, HTable, Stream};
use crate::version::Edit;
use crate::view::View;

impl Tree {
    /// Returns the new file.
    pub(super) fn build_cluster(
        &self,
        view: &View,
        container_id: ContainerId,
    ) -> Result<Vec<FileInfo>> {
        let Some(container) = view.version.at(container_id) else { return Ok(Vec::new()) };
        let old = container.cluster.as_ref();
        let mut filters = match old {
            Some(cluster) => cluster.load(Purpose::Compaction)?,
            None => Vec::new(),
        };
        let tables: Vec<_> = container.tables.iter().filter(|table| !table.is_run()).collect();
        filters.retain(|(number, _)| tables.iter().any(|table| table.number() == *number));
        let max_columns =
            tables.iter().filter_map(|table| table.filter()).map(|f| f.columns()).max();
        let Some(columns) = old.map(|cluster| cluster.columns()).or(max_columns) else {
            return Ok(Vec::new());
        };
        for table in tables {
            self.background.check_cancelled()?;
            if !old.is_some_and(|cluster| cluster.contains(table.number())) {
                filters.push((table.number(), self.filter_of(table, columns)?));
            }
        }
        let (number, bytes) = self.write_cluster(container_id, &filters)?;
        let edit = Edit { clusters: vec![(container_id, number, bytes)], ..Edit::default() };
        let files = edit.infos();
        if !self.finish_job(view.generation, edit)? {
            return Ok(Vec::new());
        }
        self.counters.clusterings.fetch_add(1, Relaxed);
        Ok(files)
    }

    fn filter_of(&self, table: &Arc<HTable>, columns: u32) -> Result<Arc<Filter>> {
        if let Some(filter) = table.filter().filter(|filter| filter.columns() == columns) {
            return Ok(filter);
        }
        let mut filter = FilterBuilder::new(columns, self.options.filter_bits);
        let mut stream = Stream::new(table.clone(), self.config.hash, Purpose::Compaction);
        while stream.load_next()? {
            self.background.check_cancelled()?;
            stream.slots().iter().for_each(|slot| filter.push(slot.hash));
        }
        Ok(Arc::new(filter.finish()))
    }

    /// Writes a cluster; returns its number and length. If that fails, the file is removed.
    pub(super) fn write_cluster(
        &self,
        container_id: ContainerId,
        filters: &[(u64, Arc<Filter>)],
    ) -> Result<(u64, u64)> {
        let number = self.versions.new_number();
        let (vfs, rate) = (self.tier_of(container_id.level).as_ref(), &self.env.rate);
        let page = self.options.bucket_bytes as u32;
        let bytes = Cluster::write(vfs, number, filters, page, rate, Purpose::Compaction)
            .inspect_err(|_| {
                let _ = vfs.remove(&Kind::Cluster.name(number));
            })?;
        self.counters.wrote(container_id.level, bytes);
        self.counters.cluster_bytes_written.fetch_add(bytes, Relaxed);
        Ok((number, bytes))
    }
}
