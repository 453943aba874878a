//! An object store in memory that counts requests, fails on command, and lets objects age.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct FaultyStore {
    objects: Arc<InMemory>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The requests so far, such as `PUT shop/FORMAT`.
    requests: Vec<String>,
    fault: Option<Fault>,
    ignores_conditions: bool,
    /// How much older objects are than they are in memory.
    ages: BTreeMap<String, Duration>,
}

/// Which requests fail, by their numbers.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// This one, without an effect.
    Before(usize),
    /// This one, after it has had its effect.
    After(usize),
    /// This one and all later ones, without an effect: the process was killed.
    From(usize),
    /// Those that contain a text, without an effect.
    Matching(&'static str),
}

impl FaultyStore {
    pub(crate) const PREFIX: &'static str = "shop";

    /// A store with the same objects, and no faults.
    pub(crate) fn fork(&self) -> Arc<Self> {
        Arc::new(FaultyStore { objects: Arc::new(self.objects.fork()), state: Arc::default() })
    }

    /// Sets what fails from now on. Requests are counted from 0 again.
    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        let mut state = self.state.lock().unwrap();
        state.fault = fault;
        state.requests.clear();
    }

    pub(crate) fn ignore_conditions(&self) {
        self.state.lock().unwrap().ignores_conditions = true;
    }

    /// Takes the requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// Makes the locks older, as if their holders had done nothing since.
    pub(crate) fn age_locks(&self, age: Duration) {
        let mut state = self.state.lock().unwrap();
        for path in self.paths().into_iter().filter(|path| path.starts_with("locks/")) {
            *state.ages.entry(format!("{}/{path}", Self::PREFIX)).or_default() += age;
        }
    }

    /// The paths of all objects of the repository.
    pub(crate) fn paths(&self) -> Vec<String> {
        let prefix = Path::from(Self::PREFIX);
        let listed = self.objects.list(Some(&prefix)).try_collect::<Vec<_>>();
        let relative =
            |meta: ObjectMeta| meta.location.as_ref().strip_prefix("shop/").unwrap().to_owned();
        listed.now_or_never().unwrap().unwrap().into_iter().map(relative).collect()
    }

    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        let location = Self::location(path);
        let read = async { self.objects.get(&location).await?.bytes().await };
        read.now_or_never().unwrap().unwrap().into()
    }

    pub(crate) fn overwrite(&self, path: &str, content: Vec<u8>) {
        let location = Self::location(path);
        self.objects.put(&location, content.into()).now_or_never().unwrap().unwrap();
    }

    pub(crate) fn delete(&self, path: &str) {
        self.objects.delete(&Self::location(path)).now_or_never().unwrap().unwrap();
    }

    fn location(path: &str) -> Path {
        Path::from(format!("{}/{path}", Self::PREFIX))
    }
}

impl State {
    /// Counts a request. Fails if it fails without an effect; `true` if it fails afterwards.
    fn begin(&mut self, request: String) -> Result<bool> {
        let number = self.requests.len();
        let fails = match &self.fault {
            Some(Fault::Before(at)) => number == *at,
            Some(Fault::From(at)) => number >= *at,
            Some(Fault::Matching(text)) => request.contains(text),
            _ => false,
        };
        self.requests.push(request);
        if fails {
            Err(failure())
        } else {
            Ok(matches!(self.fault, Some(Fault::After(at)) if at == number))
        }
    }
}

fn failure() -> Error {
    Error::Generic { store: "faulty", source: "injected failure".into() }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        let fails = {
            let mut state = self.state.lock().unwrap();
            if state.ignores_conditions {
                options.mode = PutMode::Overwrite;
            }
            state.begin(format!("PUT {location}"))?
        };
        let put = self.objects.put_opts(location, payload, options).await?;
        self.state.lock().unwrap().ages.remove(location.as_ref());
        if fails { Err(failure()) } else { Ok(put) }
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("objects are written whole")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (fails, age) = {
            let mut state = self.state.lock().unwrap();
            let age = state.ages.get(location.as_ref()).copied();
            (state.begin(format!("GET {location}"))?, age)
        };
        let mut got = self.objects.get_opts(location, options).await?;
        got.meta.last_modified -= age.unwrap_or_default();
        if fails { Err(failure()) } else { Ok(got) }
    }

    async fn get_ranges(&self, _: &Path, _: &[Range<u64>]) -> Result<Vec<Bytes>> {
        unreachable!("objects are read whole")
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (objects, state) = (self.objects.clone(), self.state.clone());
        let deleted = async move {
            let locations: Vec<_> = locations.try_collect().await?;
            let fails = state.lock().unwrap().begin(format!("DELETE {}", locations.len()))?;
            let locations = stream::iter(locations).map(Ok).boxed();
            let deleted: Vec<_> = objects.delete_stream(locations).collect().await;
            if fails { Err(failure()) } else { Ok(stream::iter(deleted)) }
        };
        stream::once(deleted).try_flatten().boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (objects, state) = (self.objects.clone(), self.state.clone());
        let prefix = prefix.cloned();
        let listed = async move {
            let name = prefix.as_ref().map_or("", |prefix| prefix.as_ref()).to_owned();
            let fails = state.lock().unwrap().begin(format!("LIST {name}"))?;
            let mut listed: Vec<ObjectMeta> = objects.list(prefix.as_ref()).try_collect().await?;
            for meta in &mut listed {
                let ages = &state.lock().unwrap().ages;
                meta.last_modified -= ages.get(meta.location.as_ref()).copied().unwrap_or_default();
            }
            let end = if fails { vec![Err(failure())] } else { vec![] };
            Ok::<_, Error>(stream::iter(listed.into_iter().map(Ok).chain(end)))
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unreachable!("lists are of everything below a directory")
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let fails = self.state.lock().unwrap().begin(format!("COPY {from}"))?;
        self.objects.copy_opts(from, to, options).await?;
        if fails { Err(failure()) } else { Ok(()) }
    }
}
