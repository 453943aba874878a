//! Failures of requests as errors of this product: with the URL, what is wrong and what to do.
//!
//! Stores answer with a status and, in the body, a code such as `NoSuchBucket`. A message has the
//! code, and not the body: that has the parts of a signature.
//!
//! | what | how it is recognized |
//! | --- | --- |
//! | no such object | status 404, and no code that means the bucket |
//! | condition not met | status 304, 409, 412 |
//! | no such bucket, clock, credentials, permission | the code, then the status |
//! | endpoint | the kind of the error of the connection |

use std::error::Error as _;
use std::io::ErrorKind;

use object_store::Error as StoreError;
use object_store::client::{HttpError, HttpErrorKind};
use siltstone_engine::Error;

use super::client::REQUEST_TIMEOUT;

/// The address at which machines of a cloud get their credentials.
const METADATA_ADDRESS: &str = "169.254.169.254";
const MAX_MESSAGE_CHARS: usize = 300;

/// A request that failed.
pub(super) struct Failed {
    /// `read`, `write`, ….
    pub(super) operation: &'static str,
    pub(super) url: String,
    /// `None` if it took longer than [`REQUEST_TIMEOUT`].
    pub(super) failure: Option<StoreError>,
}

/// What a request failed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    MissingObject,
    MissingBucket,
    UnmetCondition,
    NoConditions,
    NoCredentials,
    WrongCredentials,
    NoPermission,
    WrongClock,
    NoTls,
    Unreachable,
    Timeout,
    Other,
}

impl Failed {
    pub(super) fn cause(&self) -> Cause {
        let Some(failure) = &self.failure else { return Cause::Timeout };
        let text = failure.to_string();
        match (code(&text), failure) {
            ("NoSuchBucket" | "ContainerNotFound", _) => Cause::MissingBucket,
            ("RequestTimeTooSkewed" | "RequestExpired", _) => Cause::WrongClock,
            (
                "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "ExpiredToken"
                | "InvalidToken"
                | "AuthenticationFailed"
                | "AuthorizationHeaderMalformed",
                _,
            ) => Cause::WrongCredentials,
            ("NotImplemented", _) | (_, StoreError::NotImplemented { .. }) => Cause::NoConditions,
            (_, StoreError::NotFound { .. }) => Cause::MissingObject,
            (
                _,
                StoreError::AlreadyExists { .. }
                | StoreError::Precondition { .. }
                | StoreError::NotModified { .. },
            ) => Cause::UnmetCondition,
            (_, StoreError::Unauthenticated { .. }) => Cause::WrongCredentials,
            (_, StoreError::PermissionDenied { .. }) => Cause::NoPermission,
            _ if text.contains(METADATA_ADDRESS) => Cause::NoCredentials,
            _ if innermost(failure).contains("URL scheme is not allowed") => Cause::NoTls,
            _ => match connection_failure(failure) {
                Some(HttpErrorKind::Connect) => Cause::Unreachable,
                Some(HttpErrorKind::Timeout) => Cause::Timeout,
                _ => Cause::Other,
            },
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        let reply = failed.failure.as_ref().map(StoreError::to_string).unwrap_or_default();
        let code = match code(&reply) {
            "" => String::new(),
            code => format!(" ({code})"),
        };
        let text = failed.failure.as_ref().map(innermost).unwrap_or_default();
        let (kind, message) = match failed.cause() {
            Cause::MissingObject => (ErrorKind::NotFound, "there is no such object".into()),
            Cause::MissingBucket => (
                ErrorKind::NotFound,
                "there is no such bucket: create it, or correct the URL".into(),
            ),
            Cause::UnmetCondition => (
                ErrorKind::AlreadyExists,
                format!("another process has changed it meanwhile{code}"),
            ),
            Cause::NoConditions => (
                ErrorKind::Unsupported,
                format!(
                    "this store does not have writes with a condition{code}, which the lock of a \
                     repository needs: use another store, or a newer version of it"
                ),
            ),
            Cause::NoCredentials => (
                ErrorKind::PermissionDenied,
                format!("there are no credentials: set {}", variables(&failed.url)),
            ),
            Cause::WrongCredentials => (
                ErrorKind::PermissionDenied,
                format!("the store rejects the credentials{code}: check {}", variables(&failed.url)),
            ),
            Cause::NoPermission => (
                ErrorKind::PermissionDenied,
                format!(
                    "these credentials do not permit it{code}: a repository needs to list, read, \
                     write and delete objects"
                ),
            ),
            Cause::WrongClock => (
                ErrorKind::PermissionDenied,
                format!("the clock of this machine differs from the store's{code}: set the clock"),
            ),
            Cause::Unreachable => (
                ErrorKind::NotConnected,
                format!(
                    "the store cannot be reached: check its endpoint and the network: {}",
                    text
                ),
            ),
            Cause::Timeout => (
                ErrorKind::TimedOut,
                format!(
                    "the store did not complete the request within {} s: check the network",
                    REQUEST_TIMEOUT.as_secs()
                ),
            ),
            Cause::NoTls => (
                ErrorKind::InvalidInput,
                "the endpoint has no TLS: to send everything in the clear, set AWS_ALLOW_HTTP=true \
                 (GOOGLE_, AZURE_)"
                    .into(),
            ),
            Cause::Other if !code.is_empty() => {
                (ErrorKind::Other, format!("the store returned an error{code}"))
            }
            Cause::Other => (ErrorKind::Other, text),
        };
        let Failed { operation, url, .. } = failed;
        Error::Io { operation, file: url, kind, code: None, message }
    }
}

/// The environment variables that have the credentials for a URL.
pub(super) fn variables(url: &str) -> &'static str {
    match url.split(':').next() {
        Some("gs") => "GOOGLE_SERVICE_ACCOUNT, the file of a service account",
        Some("az") => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        _ => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    }
}

/// The code in an error's body, which is XML; empty if there is none.
fn code(text: &str) -> &str {
    let after = text.split_once("<Code>").map(|(_, after)| after);
    after.and_then(|after| after.split_once("</Code>")).map_or("", |(code, _)| code)
}

/// The kind of a failure of the connection, if it is one.
fn connection_failure(failure: &StoreError) -> Option<HttpErrorKind> {
    let mut source = failure.source();
    while let Some(error) = source {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        source = error.source();
    }
    None
}

/// The first cause as text, without the body of a reply.
fn innermost(failure: &StoreError) -> String {
    let mut error: &dyn std::error::Error = failure;
    while let Some(source) = error.source() {
        error = source;
    }
    let text = error.to_string();
    let line = text.split('<').next().unwrap_or_default();
    line.chars().take(MAX_MESSAGE_CHARS).collect::<String>().trim_end_matches([':', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(failure: StoreError) -> Failed {
        Failed { operation: "write", url: "s3://bucket/a/FORMAT".into(), failure: Some(failure) }
    }

    fn source(text: &str) -> Box<dyn std::error::Error + Send + Sync> {
        text.into()
    }

    #[test]
    fn failure_is_an_error_that_names_the_url_and_what_to_do_without_the_body() {
        let body = |code: &str| {
            source(&format!("403: <Error><Code>{code}</Code><StringToSign>hidden</StringToSign>"))
        };
        let path = String::from("a");
        let denied = |code| StoreError::PermissionDenied { path: path.clone(), source: body(code) };
        let missing = |code| StoreError::NotFound { path: path.clone(), source: body(code) };
        for (failure, expected) in [
            (denied("InvalidAccessKeyId"), "rejects the credentials (InvalidAccessKeyId)"),
            (denied("SignatureDoesNotMatch"), "rejects the credentials"),
            (denied("AccessDenied"), "do not permit it (AccessDenied)"),
            (denied("RequestTimeTooSkewed"), "set the clock"),
            (missing("NoSuchBucket"), "there is no such bucket"),
            (missing("NoSuchKey"), "there is no such object"),
            (StoreError::Generic { store: "S3", source: body("Odd") }, "an error (Odd)"),
            (StoreError::Generic { store: "S3", source: source("tokens <hidden>") }, "tokens"),
            (
                StoreError::Generic { store: "S3", source: source("URL scheme is not allowed") },
                "TLS",
            ),
            (
                StoreError::NotImplemented { operation: "put".into(), implementer: "x".into() },
                "writes with a condition",
            ),
        ] {
            let error = Error::from(failed(failure)).to_string();
            assert!(error.starts_with("cannot write s3://bucket/a/FORMAT: "), "{error}");
            assert!(error.contains(expected) && !error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn request_that_is_too_slow_is_a_timeout() {
        let failed = Failed { operation: "read", url: "gs://b".into(), failure: None };
        assert!(Error::from(failed).to_string().contains("within 240 s"));
    }
}
