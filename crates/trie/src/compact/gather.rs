//! When filters outgrow their memory, those of a container go to a BloomCluster.
//!
//! Filters of as many columns as the cluster will have are taken as they are: those of all tables of
//! full size. For another table they are made from its items, which costs reading it once. Filters in
//! memory are forgotten when the cluster is installed. A table that joins the container later keeps
//! its filter in memory until memory is short again, so that a cluster is not written anew for each.
//!
//! Invariant: until then the filters in memory answer; afterwards the cluster does.
//!
//! Source: LSM-trie paper, section 2.4.3.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result};

use crate::cluster::Cluster;
use crate::engine::Inner;
use crate::files::Kind;
use crate::htable::{Filter, FilterBuilder, HTable, Stream};
use crate::read::View;
use crate::version::{Edit, Place};

impl Inner {
    pub(super) fn gather(&self, view: &View, place: Place) -> Result<()> {
        let Some(container) = view.version.at(place) else { return Ok(()) };
        let old = container.cluster.as_ref();
        let mut filters = match old {
            Some(cluster) => cluster.load(Purpose::Compaction)?,
            None => Vec::new(),
        };
        let tables: Vec<_> = container.tables.iter().filter(|table| !table.is_run()).collect();
        filters.retain(|(number, _)| tables.iter().any(|table| table.number() == *number));
        let most = tables.iter().filter_map(|table| table.filter()).map(|f| f.columns()).max();
        let Some(columns) = old.map(|cluster| cluster.columns()).or(most) else { return Ok(()) };
        for table in tables {
            self.background.check_cancelled()?;
            if !old.is_some_and(|cluster| cluster.has(table.number())) {
                filters.push((table.number(), self.filter_of(table, columns)?));
            }
        }
        let (number, bytes) = self.write_cluster(place, &filters)?;
        let edit = Edit { clusters: vec![(place, number, bytes)], ..Edit::default() };
        if !self.finish_job(view.generation, edit)? {
            return Ok(());
        }
        self.counters.clusterings.fetch_add(1, Relaxed);
        Ok(())
    }

    fn filter_of(&self, table: &Arc<HTable>, columns: u32) -> Result<Arc<Filter>> {
        if let Some(filter) = table.filter().filter(|filter| filter.columns() == columns) {
            return Ok(filter);
        }
        let mut filter = FilterBuilder::new(columns, self.options.filter_bits);
        let mut stream = Stream::new(table.clone(), self.versions.shape.hash, Purpose::Compaction);
        while stream.load_next()? {
            self.background.check_cancelled()?;
            stream.slots().iter().for_each(|slot| filter.push(slot.hash));
        }
        Ok(Arc::new(filter.finish()))
    }

    /// Writes a cluster and answers its number and bytes; if that fails, nothing of it stays.
    pub(super) fn write_cluster(
        &self,
        place: Place,
        filters: &[(u64, Arc<Filter>)],
    ) -> Result<(u64, u64)> {
        let number = self.versions.new_number();
        let (vfs, rate) = (self.media_of(place.level).as_ref(), &self.env.rate);
        let page = self.options.bucket_bytes as u32;
        let bytes = Cluster::write(vfs, number, filters, page, rate, Purpose::Compaction)
            .inspect_err(|_| {
                let _ = vfs.remove(&Kind::Cluster.name(number));
            })?;
        self.counters.wrote(place.level, bytes);
        self.counters.cluster_bytes_written.fetch_add(bytes, Relaxed);
        Ok((number, bytes))
    }
}
