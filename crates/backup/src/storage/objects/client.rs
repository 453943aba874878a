//! Objects by their paths in a repository: requests with a time limit, and errors of this product.
//!
//! Each request is repeated with backoff as [`retry`] says, by the crate `object_store`. An attempt
//! ends after [`ATTEMPT_TIMEOUT`], and the request with all its attempts after [`REQUEST_TIMEOUT`].
//! A request that failed may have had its effect.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    BackoffConfig, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig,
    UpdateVersion,
};
use siltstone_engine::Result;

use super::failure::{Cause, Failed};

/// The time of one attempt. Eight pieces of 4 MiB at once need 2.3 Mbit/s.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// The time after which no further attempt begins.
const RETRY_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// With the backoff about 20 s.
const MAX_RETRIES: usize = 10;
const MIN_BACKOFF: Duration = Duration::from_millis(500);
/// What S3 removes in one request.
pub(super) const MAX_REMOVALS: usize = 1000;
/// The time of a request with all its attempts.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(4 * 60);

/// When and how often requests are repeated.
pub(super) fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { init_backoff: MIN_BACKOFF, ..BackoffConfig::default() },
        max_retries: MAX_RETRIES,
        retry_timeout: RETRY_TIMEOUT,
    }
}

/// The objects of a repository.
#[derive(Clone)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    /// What all names begin with.
    prefix: Path,
    /// The URL.
    name: String,
}

/// An object as it was read.
pub(super) struct Object {
    pub(super) content: Vec<u8>,
    pub(super) version: UpdateVersion,
    pub(super) modified: SystemTime,
}

/// An object of a list.
pub(super) struct ListedObject {
    /// Its path below the directory that is listed.
    pub(super) path: String,
    pub(super) len: u64,
    pub(super) modified: SystemTime,
}

impl Objects {
    pub(super) fn new(store: Arc<dyn ObjectStore>, prefix: Path, name: String) -> Self {
        Objects { store, prefix, name }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The URL of an object.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.name)
    }

    /// The object at `path`; `None` if it is missing.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Object>> {
        let location = self.location(path);
        let read = async {
            let found = self.store.get_opts(&location, GetOptions::default()).await?;
            let meta = found.meta.clone();
            Ok((found.bytes().await?, meta))
        };
        match self.bounded("read", path, read).await {
            Ok((content, meta)) => Ok(Some(Object {
                content: content.into(),
                version: UpdateVersion { e_tag: meta.e_tag, version: meta.version },
                modified: meta.last_modified.into(),
            })),
            Err(failed) if failed.cause() == Cause::MissingObject => Ok(None),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Writes an object if `mode` allows it, and returns its new version; `None` if it does not.
    pub(super) async fn put(
        &self,
        path: &str,
        content: Vec<u8>,
        mode: PutMode,
    ) -> Result<Option<UpdateVersion>> {
        let location = self.location(path);
        let is_conditional = mode != PutMode::Overwrite;
        let options = PutOptions::from(mode);
        match self
            .bounded("write", path, self.store.put_opts(&location, content.into(), options))
            .await
        {
            Ok(put) => Ok(Some(UpdateVersion { e_tag: put.e_tag, version: put.version })),
            Err(failed) if is_conditional && failed.cause() == Cause::UnmetCondition => Ok(None),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Removes up to [`MAX_REMOVALS`] objects. Those that are missing are no error: an earlier
    /// attempt removed them.
    pub(super) async fn remove(&self, paths: &[String]) -> Result<()> {
        let Some(first) = paths.first() else { return Ok(()) };
        let locations: Vec<_> = paths.iter().map(|path| Ok(self.location(path))).collect();
        let mut removals = self.store.delete_stream(stream::iter(locations).boxed());
        let removed = async {
            while let Some(removal) = removals.next().await {
                match removal {
                    Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(failure) => return Err(failure),
                }
            }
            Ok(())
        };
        Ok(self.bounded("remove", first, removed).await?)
    }

    /// Copies an object to a new name, and removes the old one.
    pub(super) async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.location(from), self.location(to));
        Ok(self.bounded("rename", from, self.store.rename(&source, &target)).await?)
    }

    /// The objects below a directory, a request for each 1,000.
    pub(super) fn list(&self, directory: &str) -> BoxStream<'static, Result<ListedObject>> {
        let below = self.location(directory);
        let (url, prefix) = (self.url(directory), below.to_string());
        let listed = self.store.list((!prefix.is_empty()).then_some(&below));
        let relative = move |path: &Path| match prefix.is_empty() {
            true => Some(path.to_string()),
            // A marker of an empty folder has the name of the directory itself.
            false => Some(path.as_ref().strip_prefix(&prefix)?.strip_prefix('/')?.to_owned()),
        };
        let objects = listed.try_filter_map(move |meta| {
            let (len, modified) = (meta.size, meta.last_modified.into());
            let path = relative(&meta.location);
            std::future::ready(Ok(path.map(|path| ListedObject { path, len, modified })))
        });
        let failed =
            move |failure| Failed { operation: "list", url: url.clone(), failure: Some(failure) };
        objects.map_err(move |failure| failed(failure).into()).boxed()
    }

    fn location(&self, path: &str) -> Path {
        path.split('/').filter(|name| !name.is_empty()).fold(self.prefix.clone(), Path::join)
    }

    async fn bounded<T>(
        &self,
        operation: &'static str,
        path: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> std::result::Result<T, Failed> {
        let failure = match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(failure)) => Some(failure),
            Err(_) => None,
        };
        Err(Failed { operation, url: self.url(path), failure })
    }
}
