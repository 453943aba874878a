//! The object store that a URL names, with what the environment says about it.
//!
//! | URL | store | environment |
//! | --- | --- | --- |
//! | `s3://BUCKET/PREFIX` | S3 and what speaks its protocol | `AWS_…` |
//! | `gs://BUCKET/PREFIX` | Google Cloud Storage | `GOOGLE_…` |
//! | `az://CONTAINER/PREFIX` | Azure Blob Storage | `AZURE_…` |

use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore};
use siltstone_engine::{Error, Result};

use super::client::{ATTEMPT_TIMEOUT, Objects, retry};
use super::failure::variables;

/// The objects below `url`. Nothing is requested.
///
/// # Errors
/// `Refused` if the URL or the environment is invalid.
pub(super) fn objects_at(url: &str) -> Result<Objects> {
    // Not with the URL: what is refused may be a password.
    if url.contains(['@', '?', '#']) {
        let reason = "a URL of a repository is a scheme, a bucket and a prefix, as in \
                      s3://bucket/prefix; credentials come from environment variables";
        return Err(Error::Invalid(reason.into()));
    }
    let url = url.trim_end_matches('/');
    let refused = |reason: String| Error::Refused { path: url.to_owned(), reason };
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(refused("the URL has no bucket; write it as s3://bucket/prefix".into()));
    }
    let prefix = Path::parse(prefix).map_err(|error| refused(error.to_string()))?;
    // The TLS of the client needs a provider of the process. One that is there stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let timeout = (ClientConfigKey::Timeout, format!("{}s", ATTEMPT_TIMEOUT.as_secs()));
    let store: object_store::Result<Arc<dyn ObjectStore>> = match scheme {
        "s3" => AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry())
            .with_config(AmazonS3ConfigKey::Client(timeout.0), timeout.1)
            .build()
            .map(|store| Arc::new(store) as _),
        "gs" => GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry())
            .with_config(GoogleConfigKey::Client(timeout.0), timeout.1)
            .build()
            .map(|store| Arc::new(store) as _),
        "az" => MicrosoftAzureBuilder::from_env()
            .with_container_name(bucket)
            .with_retry(retry())
            .with_config(AzureConfigKey::Client(timeout.0), timeout.1)
            .build()
            .map(|store| Arc::new(store) as _),
        _ => return Err(refused(format!("{scheme} is no object store; use s3, gs or az"))),
    };
    let store = store.map_err(|error| refused(format!("{error}: check {}", variables(url))))?;
    Ok(Objects::new(store, prefix, url.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_name_no_place_are_refused_without_their_secrets() {
        for (url, expected) in [
            ("s3://", "no bucket"),
            ("s3:///prefix", "no bucket"),
            ("ftp://bucket/x", "use s3, gs or az"),
            ("s3://bucket/a//b", "Path"),
            ("s3://key:secret@bucket/x", "environment variables"),
            ("az://container/x?sig=secret", "environment variables"),
        ] {
            let error = objects_at(url).map(|objects| objects.url("")).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
