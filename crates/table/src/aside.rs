//! Damaged files that a repair keeps.
//!
//! ```text
//!   keep        x ──link──▶ x and x.damaged      to be made durable before the new manifest
//!   the manifest does without x: an opening may remove it
//!   leave       x.damaged
//! ```
//!
//! So a power cut takes neither: before the manifest x is what there was, and after it x.damaged. On a medium that
//! cannot link, x changes its name last of all, and a cut just before that leaves it to the next opening.
//!
//! Source: ours.

use siltstone_engine::Result;
use siltstone_media::Media;

/// Gives the file its second name; one that was kept under it before goes. Durable with the directory.
///
/// # Errors
/// The medium's.
pub fn keep(media: &dyn Media, name: &str) -> Result<()> {
    let aside = aside(name);
    if media.exists(&aside)? {
        media.remove(&aside)?;
    }
    media.link(name, media, &aside).map(drop)
}

/// Takes the first name from a file that was [`kept`](keep).
///
/// # Errors
/// The medium's.
pub fn leave(media: &dyn Media, name: &str) -> Result<()> {
    let aside = aside(name);
    if media.exists(&aside)? { media.remove(name) } else { media.rename(name, &aside) }
}

/// The name under which a damaged file is kept.
fn aside(name: &str) -> String {
    format!("{name}.damaged")
}
